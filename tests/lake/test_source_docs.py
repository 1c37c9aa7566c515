"""Every option is in the documentation, in the table of what it is for."""

from pathlib import Path

import pytest

from courier.lake import options

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
_PLACE = {"url", "token", "tokenFile", "tenant", "awaySeconds"}


def documented(title: str) -> set[str]:
    [section] = [part for part in PAGE.split("\n## ") if part.startswith(f"{title}\n")]
    _, _, table = section.partition("| Option | Default | Meaning |\n")
    rows = [line for line in table.split("\n\n")[0].splitlines() if line.startswith("| `")]
    return {row.split("`")[1] for row in rows}


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Options for all", _PLACE),
        ("Reading the journal", {*options.BATCH, *options.STREAM} - _PLACE),
        ("Consuming a queue", {*options.CONSUME} - _PLACE - {"mode"}),
        ("Publishing", {*options.BATCH_WRITE, *options.STREAM_WRITE, *options.SPARKS} - _PLACE),
    ],
)
def test_every_option_is_documented(title: str, known: set[str]) -> None:
    assert documented(title) == known


def test_defaults_are_those_of_the_code() -> None:
    for name, value in (("pageRows", options.PAGE_ROWS), ("leaseMs", options.LEASE_MS)):
        assert f"| `{name}` | `{value}` |" in PAGE
