"""A DuckDB that knows nothing of Courier, with its own extensions; `.tools/duckdb` runs it.

Reads `{"file": ..., "extensions": [...], "first": [...], "questions": {...}}` as JSON, and writes
the rows of each question.
"""

import importlib.util
import json
import sys
from pathlib import Path

import duckdb


def extension(name: str) -> Path:
    """Where the index' package of an extension has it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert found is not None and found.submodule_search_locations is not None
    (file,) = Path(found.submodule_search_locations[0]).glob("**/*.duckdb_extension")
    return file


def main() -> None:
    asked = json.load(sys.stdin)
    read_only = asked["file"] != ":memory:"
    with duckdb.connect(asked["file"], read_only=read_only) as connection:
        for name in asked["extensions"]:
            connection.execute(f"load '{extension(name)}'")
        for statement in asked["first"]:
            connection.execute(statement)
        questions = asked["questions"].items()
        answers = {name: connection.execute(sql).fetchall() for name, sql in questions}
    json.dump(answers, sys.stdout, default=int)


if __name__ == "__main__":
    main()
