"""What a person at a terminal sees: whole ids, help, suggestions, colours."""

import argparse
import re
import shlex
import subprocess
import sys

import pytest

from courier.cli import output
from courier.cli.examples import EXAMPLES
from courier.cli.main import parser
from tests.cli.command import Command, clean_environ
from tests.cli.terminal import INTERRUPT, on_terminal
from tests.house.test_docs import COMMANDS
from tests.server import Server

STYLE = re.compile(r"\x1b\[\d+m")
BODY = "a body that is far too long for the line " * 10


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_leases_and_ids_are_never_cut(
    server: Server, courier: Command, queue: str, columns: int
) -> None:
    courier("publish", queue, BODY)
    args = ("pull", queue, "--lease", "5m", "--data", str(server.data))
    _, shown = on_terminal(*args, columns=columns)
    _, row = STYLE.sub("", shown).split("BODY\n")
    id, _, _, lease, body = re.split(r"\s{2,}", row.strip())
    assert body.startswith("a body") and body.endswith("…")
    assert max(map(len, STYLE.sub("", shown).splitlines())) <= max(columns, len(f"  {id}"))
    courier("ack", queue, lease, "--retry")
    assert courier("peek", queue, "--json").json[0]["id"] == id


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("44 min 6 s", "44 min"),
        ("44 min 6 s ago", "44 min ago"),
        ("in 2 d 4 h", "in 2 d"),
        ("3 h 12 min ago", "3 h ago"),
        ("12 s ago", "12 s ago"),
        ("0.4 s", "0.4 s"),
        ("now", "now"),
    ],
)
def test_a_narrow_terminal_shows_the_largest_unit_of_a_time(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.setattr(output, "is_narrow", lambda: False)
    assert output.brief(text) == text
    monkeypatch.setattr(output, "is_narrow", lambda: True)
    assert output.brief(text) == shown


def test_a_row_that_is_too_wide_goes_on_below(server: Server, courier: Command, queue: str) -> None:
    """Names and values of one line are below each other; no line is left to the terminal to cut."""
    url = f"https://listener.invalid/{'u' * 9}"
    courier("listener", "add", queue, "mailer", url)
    args = ("listener", "list", queue, "--data", str(server.data))
    _, shown = on_terminal(*args, columns=80, environ={"NO_COLOR": "1"})
    head, head_below, row, row_below = shown.splitlines()
    assert max(map(len, shown.splitlines())) <= 80
    assert row.startswith("mailer") and url in row and head.index("URL") == row.index(url)
    assert head_below.split() == ["ACKNOWLEDGED", "CREATED"] and row_below.split()[-1] in (
        "ago",
        "now",
    )
    assert head_below.startswith("  ") and row_below.startswith("  ")


def test_tokens_are_never_cut(server: Server, queue_name: str) -> None:
    given = server.credentials
    _, shown = on_terminal("credentials", "--data", str(server.data), columns=40)
    for secret in (given["cloudflare"]["api_token"], given["anypoint"]["client_secret"]):
        assert secret in shown


def test_the_journal_shortens_bodies_alone(server: Server, courier: Command, queue: str) -> None:
    courier("publish", queue, BODY)
    id = courier("peek", queue, "--json").json[0]["id"]
    last = courier("journal", "--limit", "1000000", "--json").out.splitlines()[-1]
    offset = int(re.findall(r'"offset":(\d+)', last)[0])
    args = ("journal", "--after", str(offset - 1), "--data", str(server.data))
    _, shown = on_terminal(*args, columns=140)
    line = shown.splitlines()[-1]
    assert id in line and line.endswith("…") and len(line) <= 140


def test_colours_are_for_terminals_that_want_them(server: Server, courier: Command) -> None:
    args = ("tenant", "list", "--data", str(server.data))
    assert STYLE.search(on_terminal(*args)[1])
    assert not STYLE.search(on_terminal(*args, environ={"NO_COLOR": "1"})[1])
    assert not STYLE.search(on_terminal(*args, environ={"TERM": "dumb"})[1])
    assert not STYLE.search(courier("tenant", "list").out)


def test_times_have_one_form_and_say_how_long_ago_on_a_terminal(
    server: Server, courier: Command, queue: str
) -> None:
    data = ("--data", str(server.data))
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.search(rf" {form}\n", courier("tenant", "list").out)
    assert re.search(r" (now|\d+ m?i?n?s?.* ago)\n", on_terminal("tenant", "list", *data)[1])
    assert re.search(rf"\ncreated +{form}\n", courier("queue", "show", queue).out)
    shown = on_terminal("queue", "show", queue, *data)[1]
    assert re.search(rf"\ncreated +{form} \((now|.* ago)\)\n", shown)


def test_what_needs_a_look_is_said_whole_on_80_columns(
    server: Server, courier: Command, queue: str
) -> None:
    courier("queue", "pause", queue)
    courier("publish", queue, "x")
    whole = courier("top", "--json").json["looks"][0]["sentence"]
    typed = [("NAME", INTERRUPT)]
    _, shown = on_terminal("top", "--data", str(server.data), typed=typed, columns=30)
    assert whole in " ".join(shown.partition("NAME")[0].split())


def test_columns_of_the_journal_stay_below_each_other(
    server: Server, courier: Command, queue: str
) -> None:
    courier("publish", queue, "x")
    path = ("journal", "--queue", queue, "--data", str(server.data))
    shown = on_terminal(*path, environ={"NO_COLOR": "1"})[1].splitlines()
    at = next(line for line in shown if "MESSAGE" in line).index("MESSAGE")
    rows = [line for line in shown if "_created" in line or "published" in line]
    assert any("consumer_created" in row for row in rows)
    assert all(row[at - 1] == " " and row[at] != " " for row in rows), shown


def test_courier_alone_is_help() -> None:
    ran = Command()()
    assert ran.out.startswith("usage: courier") and "publish" in ran.out


@pytest.mark.parametrize("group", ["", *sorted({name.split()[1] for name in COMMANDS})])
def test_help_fits_80_columns_with_a_line_for_each_command(group: str) -> None:
    _, shown = on_terminal(*group.split(), "--help", columns=80)
    lines = shown.splitlines()
    examples = {f"  {line}" for lines in EXAMPLES.values() for line in lines}
    assert [line for line in lines if len(line) > 80 and line not in examples] == []
    begin = f"courier {group}".strip()
    told = {line.split()[0]: line for line in lines if re.match(r"  [a-z]", line)}
    for name in COMMANDS:
        if name.startswith(f"{begin} "):
            word = name.removeprefix(f"{begin} ").split()[0]
            assert re.match(rf"  {word} +[a-z]", told[word]), name


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["qeue", "list"], "queue"),
        (["queue", "lst"], "list"),
        (["pul", "orders"], "pull"),
        (["pull", "orders", "--cuont", "3"], "--count"),
        (["queue", "create", "orders", "--retntion=7d"], "--retention"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(args: list[str], meant: str) -> None:
    ran = Command().attempt(*args)
    assert ran.status == 2 and f"did you mean '{meant}'?" in ran.err


def test_a_mistyped_queue_gets_a_suggestion(courier: Command, queue: str) -> None:
    line = courier.fails(1, "queue", "show", queue[:-1])
    assert f"did you mean '{queue}'?" in line


def test_json_means_one_thing() -> None:
    """Every command that has `--json` prints JSON with it, and takes no value."""
    flags = {
        name: [action for action in command._actions if "--json" in action.option_strings]
        for name, command in COMMANDS.items()
    }
    assert sum(map(len, flags.values())) > 20
    for name, actions in flags.items():
        for action in actions:
            assert action.nargs == 0 and str(action.help).startswith("print "), name
        listing = name.rpartition(" ")[2] in ("list", "show", "tables", "status", "erasures")
        assert actions or not listing, name


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_in_the_help_and_are_understood(name: str) -> None:
    for line in EXAMPLES[name]:
        assert f"\n  {line}\n" in COMMANDS[name].format_help()
        told = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line)
        program, *words = shlex.split(re.split(" [<>]", told)[0])
        assert program == "courier" and told.startswith(name)
        assert isinstance(parser(words[0]).parse_args(words), argparse.Namespace)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("que", "queue"),
        ("queue li", "list"),
        ("queue list --so", "--sort"),
        ("plan list --", "--help --json --data --tenant --url --token --account"),
        ("queue list --sort ol", "oldest"),
        ("completion fi", "fish"),
        ("queue show {queue}", "{queue}1"),
        ("publish --data {data} {queue}", "{queue}1"),
        ("queue create --dead-letter {queue}", "{queue}1"),
        ("--ver", "--version"),
        ("nonsense --", ""),
        ("queue create {queue}", ""),
    ],
)
def test_bash_completes(
    server: Server, courier: Command, queue_name: str, typed: str, offered: str
) -> None:
    courier("queue", "create", f"{queue_name}1")
    place = {"queue": queue_name, "data": str(server.data)}
    words = ["courier", *shlex.split(typed.format(**place))]
    script = f"""
        eval "$({shlex.quote(sys.executable)} -m courier completion bash)"
        courier() {{ {shlex.quote(sys.executable)} -m courier "$@"; }}
        complete -p courier | grep -q -- '-F _courier' || exit 9
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        _courier
        echo "${{COMPREPLY[@]}}"
    """
    environ = {**clean_environ(), "COURIER_DATA": str(server.data)}
    done = subprocess.run(
        ["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == (offered.format(**place), "")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (90, "90s"),
        (3_600, "1h"),
        (86_400, "1d"),
        (90_000, "25h"),
    ],
)
def test_a_length_of_time_is_shown_in_the_largest_unit_without_a_rest(
    seconds: int, shown: str
) -> None:
    assert output.duration(seconds) == shown
