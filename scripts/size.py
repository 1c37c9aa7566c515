"""How large the source is: what there is to read, and what stands there twice.

    python scripts/size.py

Lines and files of each layer and of the reading path (the way of a message: core, engine, SQLite
disk, web, app and one dialect), class names and module names that stand twice, members of the
Store and of its nouns, the longest functions.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "courier"
LAYERS = ("core", "store", "delivery", "dialects", "ops", "console", "cli", "lake")
# What a newcomer reads: folders and files, below the source.
READING_PATH = (
    "core",
    "store/engine",
    "store/disk_sqlite",
    "store/embedded.py",
    *("web.py", "connection.py", "reader.py", "incoming.py", "heads.py", "traffic.py"),
    "app.py",
    "dialects/json.py",
    "dialects/cloudflare",
)
LONGEST = 15


def files_of(parts: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for part in parts:
        path = SOURCE / part
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def line_count(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def layer_of(file: Path) -> str:
    first = file.relative_to(SOURCE).parts[0]
    return first if first in LAYERS else "beside the layers"


def classes() -> dict[str, list[str]]:
    """Where each class of the source stands."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file.relative_to(SOURCE).as_posix())
    return found


def modules_twice() -> dict[str, list[str]]:
    """Module names that stand twice in a layer, by layer."""
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for file in SOURCE.rglob("*.py"):
        if file.stem != "__init__":
            names[layer_of(file)][file.stem] += 1
    twice = {layer: sorted(n for n, c in each.items() if c > 1) for layer, each in names.items()}
    return {layer: each for layer, each in sorted(twice.items()) if each}


def members() -> dict[str, int]:
    """Of each protocol of `core/store.py`, with those of its bases."""
    tree = ast.parse((SOURCE / "core" / "store.py").read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = {each.name for each in node.body if isinstance(each, kinds)}
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            names |= {each.id for each in fields if isinstance(each, ast.Name)}
            for base in node.bases:
                names |= found.get(base.id, set()) if isinstance(base, ast.Name) else set()
            found[node.name] = names
    return {name: len(names) for name, names in found.items()}


def functions() -> list[tuple[int, str]]:
    """Lines of each function, longest first."""
    found = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append((length, f"{file.relative_to(SOURCE)}: {node.name}"))
    return sorted(found, reverse=True)


def main() -> None:
    layers: dict[str, list[Path]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        layers[layer_of(file)].append(file)
    for layer, files in sorted(layers.items()):
        print(f"{layer:24} {line_count(files):7,} lines {len(files):4} files")
    for what, files in (
        ("source", [file for each in layers.values() for file in each]),
        ("tests", list((ROOT / "tests").rglob("*.py"))),
        ("reading path", files_of(READING_PATH)),
    ):
        print(f"{what:24} {line_count(files):7,} lines {len(files):4} files")
    for part in READING_PATH:
        files = files_of([part])
        print(f"  {part:22} {line_count(files):7,} lines {len(files):4} files")
    twice = {name: where for name, where in sorted(classes().items()) if len(where) > 1}
    print(f"\nclass names that stand twice: {len(twice)}")
    for name, where in twice.items():
        print(f"  {name}: {', '.join(where)}")
    print("\nmodule names that stand twice in a layer")
    for layer, names in modules_twice().items():
        print(f"  {layer}: {', '.join(names)}")
    print("\nmembers")
    for name, count in members().items():
        print(f"  {name:20} {count:3}")
    print("\nlongest functions")
    for length, where in functions()[:LONGEST]:
        print(f"  {length:4} {where}")


if __name__ == "__main__":
    main()
