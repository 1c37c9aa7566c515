"""The table of event sources and the request type name the same sources."""

from typing import get_args

from courier.dialects.cloudflare.sources import SOURCES
from courier.dialects.cloudflare.wire import SourceBody, SourceType


def test_every_source_type_has_its_events_and_fields() -> None:
    assert set(SOURCES) == set(get_args(SourceType))
    fields = {name for names, _ in SOURCES.values() for name in names}
    assert fields | {"type"} == set(SourceBody.__struct_fields__)
