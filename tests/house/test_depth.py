"""JSON that is nested too deeply is an error like any other where text from outside is read."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "courier"
PARTS = ("console", "core", "delivery", "dialects", "ops")
# Files that Courier wrote itself, and answers of a process of its own.
OWN = {"console/plans.py", "console/lake.py"}


def _names(handler: ast.ExceptHandler) -> set[str]:
    found = [] if handler.type is None else [*ast.walk(handler.type)]
    names = {each.attr for each in found if isinstance(each, ast.Attribute)}
    return names | {each.id for each in found if isinstance(each, ast.Name)}


def test_whoever_expects_bad_json_expects_deep_json() -> None:
    looked, missing = 0, []
    for part in PARTS:
        for file in sorted((ROOT / part).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Try):
                    continue
                caught = set().union(*map(_names, node.handlers))
                if "DecodeError" in caught:
                    looked += 1
                    if "RecursionError" not in caught and name not in OWN:
                        missing.append(f"{name}:{node.lineno}")
    assert looked > 5 and missing == []
