"""The pictures of the source in `docs/ARCHITECTURE.md` are those of the source."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
GRAPH = runpy.run_path(str(ROOT / "scripts" / "imports.py"))


def test_the_import_graph_is_current() -> None:
    shown = GRAPH["page_with"](GRAPH["drawn"](), PAGE)
    assert shown == PAGE, "run: python scripts/imports.py --write"


def test_parts_that_import_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        GRAPH["levels"]({"a": {"b"}, "b": {"a"}, "c": set()})


def walks() -> list[str]:
    """Each file that a walk names, below the source; a name alone is beside the one before it."""
    found: list[str] = []
    text = PAGE.partition("\n## Walks\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| .* \| (.*) \|$", text, re.M):
        folder = ""
        for name in re.findall(r"`([\w/]+\.py)`", row):
            folder = name.rpartition("/")[0] + "/" if "/" in name else folder
            found.append(name if "/" in name else folder + name)
    return found


def test_the_walks_name_files_that_exist() -> None:
    named = walks()
    assert len(named) > 50
    assert [name for name in named if not (ROOT / "src" / "courier" / name).is_file()] == []
