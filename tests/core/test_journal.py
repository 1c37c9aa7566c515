from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from courier import ids
from courier.core import journal
from courier.core.types import AnyRecord, Run

QUEUE = "c0" + "12" * 15


def run(offset: int, count: int, kind: str = "leased", **columns: Any) -> Run:
    return Run(
        offset=offset,
        count=count,
        kind=kind,
        at_ms=1_000,
        tenant="t",
        queue=QUEUE,
        queue_name="orders",
        actor="caller",
        dialect="test",
        columns=columns,
    )


RUNS = [
    run(4, 3, seq=[1, 2, 3], published_ms=900, size=5),
    run(7, 1, seq=4, published_ms=900, size=5),
    run(8, 4, seq=[5, 6, 7, 8], published_ms=[901, 901, 902, 903], size=[1, 2, 3, 4]),
]
FIRST, LAST = 4, 11


def offsets(runs: list[Run], *, after: int, limit: int) -> list[int]:
    return [event["offset"] for event in journal.events(runs, after=after, limit=limit)]


def test_all_events_of_all_runs_unfold() -> None:
    assert offsets(RUNS, after=0, limit=100) == list(range(FIRST, LAST + 1))


@given(after=st.integers(0, 14), limit=st.integers(0, 12))
def test_any_range_is_cut_out_exactly(after: int, limit: int) -> None:
    wanted = [offset for offset in range(FIRST, LAST + 1) if offset > after][:limit]
    assert offsets(RUNS, after=after, limit=limit) == wanted


def test_a_cut_says_which_part_of_each_run_it_takes() -> None:
    parts = list(journal.cut(RUNS, after=5, limit=4))
    assert [(part.offset, start, stop) for part, start, stop in parts] == [
        (4, 2, 3),
        (7, 0, 1),
        (8, 0, 2),
    ]


def test_a_cut_leaves_out_runs_that_have_no_part_in_it() -> None:
    assert list(journal.cut(RUNS, after=11, limit=5)) == []
    assert list(journal.cut(RUNS, after=0, limit=0)) == []
    assert list(journal.cut([], after=0, limit=5)) == []
    assert [part.offset for part, _, _ in journal.cut(RUNS, after=6, limit=1)] == [7]


def test_a_column_is_one_value_for_all_or_one_for_each() -> None:
    shared, single, each = RUNS
    assert journal.column(shared, "size") == [5, 5, 5]
    assert journal.column(single, "seq") == [4]
    assert journal.column(each, "size") == [1, 2, 3, 4]
    assert journal.column(each, "headers") == [None] * 4


def test_message_ids_are_put_together_from_what_the_run_says() -> None:
    events = list(journal.events(RUNS, after=0, limit=100))
    assert events[-1]["message_id"] == ids.message_id(published_ms=903, seq=8, queue=QUEUE)
    assert events[0]["message_id"] == ids.message_id(published_ms=900, seq=1, queue=QUEUE)


def test_the_publishers_own_ids_win() -> None:
    mixed = run(1, 3, seq=[1, 2, 3], published_ms=900, own_id=["a", None, "c"])
    generated = ids.message_id(published_ms=900, seq=2, queue=QUEUE)
    assert journal.column(mixed, "message_id") == ["a", generated, "c"]
    [event] = journal.events([run(1, 1, seq=1, published_ms=900, own_id="a")], after=0, limit=9)
    assert event["message_id"] == "a"
    assert "own_id" not in event


def test_a_settings_event_has_no_message_id() -> None:
    [event] = journal.events([run(1, 1, "queue_created", detail={"id": QUEUE})], after=0, limit=1)
    assert event == {
        "offset": 1,
        "at_ms": 1_000,
        "kind": "queue_created",
        "tenant": "t",
        "queue": QUEUE,
        "queue_name": "orders",
        "actor": "caller",
        "dialect": "test",
        "detail": {"id": QUEUE},
    }


def test_absent_values_are_left_out_and_empty_ones_are_not() -> None:
    full = run(
        1, 2, "published", seq=[1, 2], published_ms=900, body=[b"", b"x"], headers=[None, {}]
    )
    first, second = journal.events([full], after=0, limit=2)
    assert first["body"] == b""
    assert "headers" not in first
    assert second["headers"] == {}
    assert "lease_ms" not in first


def test_every_event_has_only_known_fields_in_their_order() -> None:
    columns: dict[str, Any] = {name: 1 for name in journal.COLUMNS if name != "message_id"}
    [event] = journal.events([run(1, 1, **columns)], after=0, limit=1)
    assert list(event) == list(journal.FIELDS)


@pytest.mark.parametrize("kind", journal.RECORD_KINDS.values())
def test_no_kind_of_record_is_a_kind_of_message_event(kind: str) -> None:
    for verb in ("created", "updated", "deleted"):
        assert f"{kind}_{verb}" not in journal.MESSAGE_KINDS


def test_every_record_has_a_kind_of_its_own() -> None:
    assert set(journal.RECORD_KINDS) == set(get_args(AnyRecord))
    assert len(set(journal.RECORD_KINDS.values())) == len(journal.RECORD_KINDS)


def test_what_records_keep_secret_is_a_field_of_some_record() -> None:
    fields = {field.name for kind in journal.RECORD_KINDS for field in structs.fields(kind)}
    assert set(journal.SECRET_FIELDS) <= fields
