"""The documentation names every setting and every command."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from courier import config
from courier.cli.main import parser
from courier.core import journal

DOCS = Path(__file__).parents[2] / "docs"
SERVER_FLAGS = {"--data", "--tenant", "--url", "--token", "--account"}


def setting_row(setting: config.Setting) -> str:
    """The line of the table that a setting must have."""
    default = setting.shown(setting.default)
    values = setting.values.replace("a whole number from ", "")
    cells = [f"`{setting.name}`", f"`{default}`" if default else "empty", values, setting.spec.help]
    return f"| {' | '.join(cells)} |"


def leaves(
    command: argparse.ArgumentParser, name: str = "courier"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that does something, by its full name."""
    groups = [a for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield name, command
    for group in groups:
        for word, child in group.choices.items():
            yield from leaves(child, f"{name} {word}")


COMMANDS = dict(leaves(parser()))


@pytest.mark.parametrize("setting", config.settings(), ids=lambda setting: setting.name)
def test_the_documentation_states_default_values_and_help_of(setting: config.Setting) -> None:
    assert setting_row(setting) in (DOCS / "configuration.md").read_text().splitlines()


def test_the_documentation_has_no_row_for_a_setting_that_is_gone() -> None:
    lines = (DOCS / "configuration.md").read_text().splitlines()
    documented = [line for line in lines if line.startswith("| `")]
    assert documented == [setting_row(setting) for setting in config.settings()]


def section(name: str) -> str:
    """What the documentation says below a command's heading."""
    _, found, rest = (DOCS / "cli.md").read_text().partition(f"\n### `{name}`\n")
    assert found, f"docs/cli.md has no section for {name}"
    return rest.partition("\n#")[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_documentation_names_every_argument_of(name: str) -> None:
    if name in ("courier serve", "courier init", "courier config", "courier up"):
        names = {"--config"}  # the settings have a page of their own
        if name == "courier up":
            names |= {"--every", "--lake"}
    else:
        names = {
            action.option_strings[-1] if action.option_strings else str(action.metavar)
            for action in COMMANDS[name]._actions
        } - {"--help", *SERVER_FLAGS}
    text = section(name)
    assert {argument for argument in names if argument not in text} == set()


@pytest.mark.parametrize("flag", sorted(SERVER_FLAGS | {"--version"}))
def test_the_documentation_names_the_common_flag(flag: str) -> None:
    assert f"`{flag}" in (DOCS / "cli.md").read_text().partition("\n### ")[0]


def test_the_documentation_has_no_command_that_is_gone() -> None:
    lines = (DOCS / "cli.md").read_text().splitlines()
    documented = [line.strip("#` ") for line in lines if line.startswith("### ")]
    assert documented == list(COMMANDS)


def first_cells(page: str, head: str) -> list[str]:
    """The names in the first column of the table with this head."""
    rows = (DOCS / page).read_text().partition(f"\n{head}\n")[2].partition("\n\n")[0].splitlines()
    return [name.strip(" `") for row in rows[1:] for name in row.split("|")[1].split(",")]


def test_the_documentation_says_what_every_field_of_an_event_is() -> None:
    assert sorted(first_cells("journal.md", "| Field | Meaning |")) == sorted(journal.FIELDS)


def test_the_documentation_says_when_there_is_an_event_of_every_kind() -> None:
    said = first_cells("journal.md", "| Kind | When |")
    changes = ("created", "updated", "deleted")
    kinds = {kind.replace("*", change) for kind in said for change in changes}
    assert kinds == journal.KINDS
