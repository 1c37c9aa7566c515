"""What the command does without a server: settings, help, and saying what is wrong."""

import argparse
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from courier import __version__, config
from courier.cli.main import COMMANDS, parser
from courier.masking import masked
from tests.cli.command import Command
from tests.server import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def courier(tmp_path: Path) -> Command:
    """The command in an empty directory."""
    return Command(cwd=tmp_path)


@pytest.fixture(params=["not HTTP", "cut off", "other JSON", "other page", "other refusal"])
def stranger(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, str]]:
    """Something that answers, but is no Courier: its address, and what is to be said about it."""
    content, status, said = {
        "not HTTP": (b"220 mail.example.org ESMTP\r\n", 3, "cannot reach"),
        "cut off": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", 3, "cut off"),
        "other JSON": (b"HTTP/1.1 200 OK\r\n\r\n{}", 1, "does not answer like a Courier server"),
        "other page": (b"HTTP/1.1 200 OK\r\n\r\n<html>", 1, "something that is not JSON"),
        "other refusal": (b"HTTP/1.1 404 No\r\n\r\n<html>", 1, "the server answered 404: <html>"),
    }[request.param]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", status, said
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_every_command_is_declared_where_it_is_looked_for() -> None:
    def declared(command: str = "") -> list[str]:
        [action] = [
            action
            for action in parser(command)._actions
            if isinstance(action, argparse._SubParsersAction)
        ]
        return list(action.choices)

    assert declared() == list(COMMANDS)
    for command, module in COMMANDS.items():
        assert declared(command) == [name for name, other in COMMANDS.items() if other == module]


def test_version_is_printed(courier: Command) -> None:
    assert courier("--version").out == f"courier {__version__}\n"


def test_help_lists_the_commands(courier: Command) -> None:
    assert "publish a message" in courier("--help").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("queue", "missing COMMAND; see `courier queue --help`"),
        ("nonsense", "unknown command 'nonsense'; see `courier --help`"),
        ("--nonsense", "unknown option '--nonsense'; see `courier --help`"),
        ("queue list --nonsense", "unknown option '--nonsense'; see `courier queue list --help`"),
        ("queue create", "missing NAME; see `courier queue create --help`"),
        ("publish a b c", "unknown argument 'c'; see `courier publish --help`"),
        ("redrive", "missing QUEUE; see `courier redrive --help`"),
        ("key create k", "missing --scope; see `courier key create --help`"),
        ("journal --queue", "--queue needs a value; see `courier journal --help`"),
        ("queue list --json=1", "--json takes no value; see `courier queue list --help`"),
        (
            "queue delete a --yes --dry-run",
            "--dry-run cannot be used with --yes; see `courier queue delete --help`",
        ),
        (
            "publish a b --type jsn",
            "--type: 'jsn' is not one of text, json; did you mean 'json'? "
            "See `courier publish --help`",
        ),
        (
            "pull a --count 0",
            "--count: '0' is not a whole number from 1 to 100; see `courier pull --help`",
        ),
        (
            "journal --since yesterday",
            "--since: 'yesterday' is not a time such as 2026-01-31T12:00:00Z, or as long ago as "
            "10m or 2h; see `courier journal --help`",
        ),
    ],
)
def test_a_mistake_in_the_command_line_is_one_sentence(
    courier: Command, args: str, said: str
) -> None:
    assert courier.fails(2, *args.split()) == f"courier: {said}"


def test_config_shows_each_value_and_its_source(courier: Command, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('queues_max = 5\nhost = "h"')
    ran = courier(
        *("config", "--config", "c.toml", "--port", "1"), environ={"COURIER_SWEEP_EVERY_MS": "1s"}
    )
    assert len(ran.rows) == len(config.settings())
    assert ["queues_max", "5", "c.toml"] in ran.rows
    assert ["sweep_every_ms", "1000", "COURIER_SWEEP_EVERY_MS"] in ran.rows
    assert ["port", "1", "--port"] in ran.rows
    assert ["log_requests", "false", "default"] in ran.rows


def test_config_as_json_keeps_numbers_and_switches(courier: Command) -> None:
    shown = courier("config", "--json", "--log-requests").json
    assert shown["port"] == {"value": 8787, "source": "default"}
    assert shown["log_requests"] == {"value": True, "source": "--log-requests"}
    assert shown["data"] == {"value": "courier-data", "source": "default"}


@pytest.mark.parametrize("command", ["serve", "config"])
def test_a_setting_that_cannot_be_used_stops_the_start_with_one_sentence(
    courier: Command, command: str
) -> None:
    line = courier.fails(2, command, "--port", "70000")
    assert line == "courier: --port: port must be a whole number from 0 to 65535, not '70000'"


def test_a_variable_that_names_no_setting_stops_the_start(courier: Command) -> None:
    ran = courier.attempt("serve", environ={"COURIER_PROT": "1"})
    assert ran.status == 2
    assert ran.err == "courier: COURIER_PROT: 'prot' names no setting; did you mean 'port'?\n"


def test_without_credentials_the_sentence_says_how_to_get_them(courier: Command) -> None:
    line = courier.fails(2, "queue", "list")
    assert "courier-data/credentials.json" in line
    assert "`courier serve`" in line
    assert "courier-data/credentials.json" in courier.fails(2, "credentials")


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_credentials_file_that_is_none_is_named(
    courier: Command, tmp_path: Path, content: str
) -> None:
    (tmp_path / "credentials.json").write_text(content)
    line = courier.fails(2, "queue", "list", "--data", ".")
    assert "credentials.json is not a credentials file" in line


def test_the_data_directory_may_come_from_its_variable(courier: Command, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "credentials.json").write_text('{"tenant": "default"}')
    ran = courier("credentials", "--json", environ={"COURIER_DATA": "here"})
    assert ran.json == {"tenant": "default"}


def test_credentials_are_shown_one_value_to_a_line(courier: Command, tmp_path: Path) -> None:
    content = {"tenant": "t", "admin": {"token": "x"}}
    (tmp_path / "credentials.t.json").write_text(json.dumps(content))
    ran = courier("credentials", "--data", ".", "--tenant", "t")
    assert ran.rows == [["tenant", "t"], ["admin.token", "x"]]


def test_a_server_that_is_not_there_is_named_with_how_to_start_it(courier: Command) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = courier.fails(3, "queue", "list", "--url", url, "--token", "t", "--account", "a")
    assert line == (
        f"courier: cannot reach {url} (Connection refused): start the server with "
        "`courier serve`, or name another with --url"
    )


def test_a_host_that_does_not_exist_cannot_be_reached(courier: Command) -> None:
    line = courier.fails(3, "queue", "list", "--url", "http://no.host.invalid", "--token", "t")
    assert line.startswith("courier: cannot reach http://no.host.invalid (")


def test_something_that_is_no_courier_server_is_told_apart(
    courier: Command, stranger: tuple[str, int, str]
) -> None:
    url, status, said = stranger
    assert said in courier.fails(status, "queue", "list", "--url", url, "--token", "t")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:1",
        "ftp://x",
        "http://:80",
        "http://x:y",
        "http://[",
        "http://a..b",
        "http://x/a b",
    ],
)
def test_an_address_that_is_none_is_a_usage_error(courier: Command, url: str) -> None:
    line = courier.fails(2, "queue", "list", "--url", url, "--token", "t")
    assert f"'{masked(url)}' is not an http:// or https:// address" in line


def test_a_token_may_stand_in_a_file(courier: Command, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "token").write_text("secret\n")
    assert "cannot reach" in courier.fails(3, "queue", "list", "--url", url, "--token", "@token")
    assert "@nothing"[1:] in courier.fails(2, "queue", "list", "--url", url, "--token", "@nothing")
    assert "token" in courier.fails(2, "queue", "list", "--url", url, "--token", "two\nlines")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("publish", "q"), "give one of BODY"),
        (("publish", "q", "body", "--lines"), "give one of BODY"),
        (("publish", "q", "--lines", "--id", "k"), "--id names one message"),
        (("publish", "q", "body", "--id", "ü"), "--id takes printable ASCII"),
        (("publish", "q", "{", "--type", "json"), "the body is not JSON"),
        (("publish", "q", "NaN", "--type", "json"), "the body is not JSON"),
        (("publish", "q", "--file", "missing"), "cannot read missing"),
        (("publish", "q", "b", "--delay", "soon"), "'soon' is not a duration"),
        (("publish", "q", "b", "--delay", "500ms"), "not a whole number of seconds"),
        (("pull", "q", "--count", "101"), "'101' is not a whole number from 1 to 100"),
        (("ack", "q", "lease", "--delay", "1s"), "--delay needs --retry"),
        (("queue", "create", "q", "--no-consumer", "--lease", "1s"), "leave out --no-consumer"),
        (("queue", "list", "--tenant", "../x"), "is not a tenant's name"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_before_anything_is_sent(
    courier: Command, args: tuple[str, ...], said: str
) -> None:
    assert said in courier.fails(2, *args)


def test_a_body_that_is_not_utf8_is_refused(courier: Command) -> None:
    assert "not UTF-8" in courier.fails(2, "publish", "q", "-", stdin=b"\xff")
