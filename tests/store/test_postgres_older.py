"""A server of a release of PostgreSQL that is too old, which npm has where Debian does not."""

import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from courier.store.disk_postgres import migrate
from courier.store.disk_postgres.connection import VERSION_MIN
from tests import postgres
from tests.store.test_postgres import refusal

PACKAGE = Path(__file__).parents[2] / ".tools" / "node_modules" / "postgres-14"
# There is no package for other machines: a newer server then stands in for an old one.
HAS_PACKAGE = (sys.platform, platform.machine()) == ("linux", "x86_64")


@contextmanager
def programs() -> Iterator[Path]:
    """Those of the package, where the user that PostgreSQL runs as can go."""
    with tempfile.TemporaryDirectory(prefix="courier-older-") as place:
        Path(place).chmod(0o755)
        shutil.copytree(PACKAGE / "native", Path(place) / "native")
        # npm packages hold no links; this one has a list of those that are missing.
        for link in json.loads((PACKAGE / "native" / "pg-symlinks.json").read_text()):
            target = Path(place) / link["target"]
            if not target.exists():
                target.symlink_to(Path(link["source"]).name)
        yield Path(place) / "native" / "bin"


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[postgres.Database]:
    if not HAS_PACKAGE:
        monkeypatch.setattr(migrate, "VERSION_MIN", 99)
        yield postgres.server()
        return
    with programs() as found:
        database = postgres.Database("fsync=off", programs=found)
        yield database
        database.remove()


@pytest.mark.slow
def test_a_server_that_is_too_old_is_refused_and_left_alone(old: postgres.Database) -> None:
    needed = VERSION_MIN if HAS_PACKAGE else 99
    version = old.sql("SHOW server_version_num").strip()[:2]
    said = refusal(old.url("old"))
    assert f"is PostgreSQL {version}; Courier needs {needed} or newer" in said
    assert "\n" not in said
    assert not old.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'old'")
