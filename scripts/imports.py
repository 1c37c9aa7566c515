"""The import graph of the source, part by part, as `docs/ARCHITECTURE.md` shows it.

    python scripts/imports.py            print it
    python scripts/imports.py --write    put it into the page

A part is a folder, or the files beside the folders that do one job. Each line names the parts that
a part imports, without those that it reaches through another of them anyway. Parts of one level
do not import each other; every part imports from lower levels alone.
"""

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "courier"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- imports: scripts/imports.py -->\n", "<!-- end of imports -->\n"

# Files beside the folders, by the job they do; what is in none of these is part `base`.
SERVING = (
    *("connection", "heads", "incoming", "proxies", "reader", "serving", "tls", "traffic"),
    *("admissions", "web", "long_texts", "refusals", "telemetry"),
)
STARTING = ("app", "sealing")
# Folders whose folders are parts.
DIVIDED = ("store", "dialects")
# Files that belong to another part than their folder, or to none.
APART = {
    "__main__": "cli",
    "arrow": "ops",
    "credentials": "credentials",
    "store/copy_tables": "store/copy_tables",
}


def part_of(module: str) -> str:
    """Of a module such as `store/engine/book`, by its path below the source."""
    if module in APART:
        return APART[module]
    first, *rest = module.split("/")
    if not rest and not (SOURCE / first).is_dir():
        return "serving" if first in SERVING else "app" if first in STARTING else "base"
    if first in DIVIDED and rest and (SOURCE / first / rest[0]).is_dir():
        return f"{first}/{rest[0]}"
    return first


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).with_suffix("").as_posix().removesuffix("/__init__")
        if name != "__init__":
            found[name] = file
    return found


def imported(file: Path, known: Mapping[str, Path]) -> set[str]:
    """Modules of Courier that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    paths = [name.removeprefix("courier.").replace(".", "/") for name in found if "courier" in name]
    return {
        path if path in known else path.rpartition("/")[0]
        for path in paths
        if path in known or path.rpartition("/")[0] in known
    }


def edges() -> dict[str, set[str]]:
    """Part -> the parts that it imports."""
    known = modules()
    found: dict[str, set[str]] = {part_of(name): set() for name in known}
    for name, file in known.items():
        part = part_of(name)
        found[part] |= {part_of(each) for each in imported(file, known)} - {part}
    return found


def levels(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Lowest first. Raises ValueError when parts import each other in a circle."""
    placed: list[list[str]] = []
    left = dict(graph)
    while left:
        free = sorted(part for part, needs in left.items() if not needs & left.keys())
        if not free:
            raise ValueError(f"these parts import each other in a circle: {sorted(left)}")
        placed.append(free)
        left = {part: needs for part, needs in left.items() if part not in free}
    return placed


def reached(graph: Mapping[str, set[str]], part: str) -> set[str]:
    return graph[part].union(*(reached(graph, each) for each in graph[part]))


def drawn() -> str:
    graph = edges()
    placed = levels(graph)
    width = max(map(len, graph))
    lines = []
    for number, parts in reversed([*enumerate(placed)]):
        for part in parts:
            through = set[str]().union(*(reached(graph, each) for each in graph[part]))
            direct = ", ".join(sorted(graph[part] - through))
            lines.append(f"{number}  {part:<{width}}  {'-> ' + direct if direct else ''}".rstrip())
    return "```\n" + "\n".join(lines) + "\n```\n"


def page_with(graph: str, page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{graph}{END}{after}"


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page_with(drawn(), PAGE.read_text()))
    else:
        print(drawn(), end="")


if __name__ == "__main__":
    main()
