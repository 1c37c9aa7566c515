"""Names on disk are made, replaced and removed in one place, which makes them durable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "courier"
VERBS = {
    *("mkdir", "makedirs", "mkstemp", "write_text", "write_bytes"),
    *("unlink", "rmdir", "removedirs", "symlink_to", "hardlink_to", "symlink", "link"),
    *("chmod", "fchmod", "umask", "fsync", "copyfile", "copytree", "NamedTemporaryFile"),
}
OF_OS = {"os.replace", "os.rename", "os.remove", "os.renames", "shutil.move"}
# Files whose names need not survive a power cut, and why.
EXCEPT = {
    "files.py": "the place",
    "store/disk_sqlite/damage.py": "it syncs what is in a file, and changes no name",
    "store/disk_sqlite/volume.py": "it syncs what was copied into the database",
    "lake/upkeep.py": "empty folders that come back do no harm",
    "cli/report.py": "a page for its reader, written wherever they say, a terminal too",
}
LOCKS = {"store/disk_sqlite/connection.py", "lake/lock.py", "lake/replay.py"}


def _written(call: ast.Call) -> bool:
    """Whether it opens a file for writing, as far as its mode is spelled out."""
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    modes = [each.value for each in call.args[:2] if isinstance(each, ast.Constant)]
    modes += [each.value.value for each in call.keywords if each.arg == "mode"
              and isinstance(each.value, ast.Constant)]  # fmt: skip
    return name == "open" and any(isinstance(m, str) and {*m} & {*"wax+"} for m in modes)


def offences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            if node.attr in VERBS or ast.unparse(node) in OF_OS:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and _written(node):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_other_module_changes_names_on_disk() -> None:
    found: list[str] = []
    for file in sorted(str(each.relative_to(ROOT)) for each in ROOT.rglob("*.py")):
        source = (ROOT / file).read_text()
        here = [] if file in EXCEPT else [*offences(source)]
        if file in LOCKS:  # opened for writing only once `files.create` has made them
            assert "files.create(" in source, file
            here = [each for each in here if ".open(" not in each]
        found += [f"{file}:{each}" for each in here]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "path.mkdir()",
        "os.makedirs(path)",
        "path.write_text('x')",
        "open(path, 'w')",
        "path.open('ab')",
        "open(path, mode='r+')",
        "os.replace(a, b)",
        "path.unlink(missing_ok=True)",
        "os.umask(0)",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert [*offences(source)]


@pytest.mark.parametrize("source", ["open(path)", "path.open('rb')", "text.replace('a', 'b')"])
def test_the_check_passes(source: str) -> None:
    assert not [*offences(source)]
