"""`courier publish`, `pull`, `ack`, `peek` and `redrive`."""

import os
import pty
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.server import Server

pytestmark = pytest.mark.slow


def bodies(courier: Command, queue: str) -> list[object]:
    """The bodies of what is ready, as programs see them."""
    return [message["body"] for message in courier("peek", queue, "--count", "100", "--json").json]


def test_a_published_text_can_be_pulled_and_is_gone_once_acked(
    courier: Command, queue: str
) -> None:
    said = courier("publish", queue, "héllo  wörld").out
    assert said == f"published; queue '{queue}' holds 1 message\n"
    (message,) = courier("pull", queue, "--json").json
    assert (message["body"], message["content_type"]) == ("héllo  wörld", "text")
    assert message["attempt"] == 1
    assert courier("ack", queue, message["lease"]).out == "acked 1 message\n"
    assert courier("pull", queue, "--json").json == []


def test_a_body_may_begin_with_a_dash(courier: Command, queue: str) -> None:
    courier("publish", queue, "--", "--lines")
    assert bodies(courier, queue) == ["--lines"]


def test_flags_may_stand_before_the_body(courier: Command, queue: str) -> None:
    courier("publish", "--type", "json", queue, "--delay", "0", '{"a": 1}')
    assert bodies(courier, queue) == [{"a": 1}]


def test_an_empty_body_is_a_message(courier: Command, queue: str) -> None:
    courier("publish", queue, "")
    assert bodies(courier, queue) == [""]


def test_a_body_can_come_from_stdin_or_a_file(courier: Command, queue: str, tmp_path: Path) -> None:
    courier("publish", queue, "-", stdin=b"one\ntwo\n")
    (tmp_path / "body").write_text("from a file")
    courier("publish", queue, "--file", str(tmp_path / "body"))
    assert bodies(courier, queue) == ["one\ntwo\n", "from a file"]


def test_json_keeps_its_numbers_digit_for_digit(courier: Command, queue: str) -> None:
    courier(
        "publish", queue, '{"n": 1.10, "big": 123456789012345678901234567890}', "--type", "json"
    )
    shown = courier("pull", queue, "--json").out
    assert '"n": 1.10' in shown
    assert '"big": 123456789012345678901234567890' in shown


@pytest.mark.parametrize("text", ["null", "true", "1234", '"true"', "[]", '"aGk="'])
def test_json_bodies_are_shown_decoded(courier: Command, queue: str, text: str) -> None:
    courier("publish", queue, text, "--type", "json")
    assert [row[-1] for row in courier("peek", queue).rows] == [text]


def test_json_bodies_are_shown_decoded_whatever_the_server_is_set_to(
    tmp_path: Path, queue_name: str
) -> None:
    plain = ["--json-body-encoding", "plain", "--store", "memory"]
    with Server(tmp_path, args=plain).start() as server:
        courier = Command("--data", str(server.data))
        courier("queue", "create", queue_name)
        for text in ["null", "true", "1234", '"true"', "[]", '"aGk="']:
            courier("publish", queue_name, text, "--type", "json")
        shown = courier("peek", queue_name, "--count", "100").rows
        assert [row[-1] for row in shown] == ["null", "true", "1234", '"true"', "[]", '"aGk="']


def test_a_table_shows_control_characters_escaped(courier: Command, queue: str) -> None:
    courier("publish", queue, "a\x1b[2Jb\nc")
    (row,) = courier("peek", queue).rows
    assert row[-1] == r"a\x1b[2Jb\nc"


def test_the_same_id_stores_one_message(courier: Command, queue: str) -> None:
    courier("publish", queue, "first", "--id", "order 7")
    courier("publish", queue, "first", "--id", "order 7")
    courier("publish", queue, "other", "--id", "order 8")
    assert bodies(courier, queue) == ["first", "other"]


def test_a_delayed_message_is_not_handed_out_yet(courier: Command, queue: str) -> None:
    courier("publish", queue, "later", "--delay", "1h")
    ran = courier("pull", queue)
    assert ran.out == ""
    assert ran.err == f"queue '{queue}' has nothing to hand out now\n"


def test_each_line_becomes_a_message(courier: Command, queue: str) -> None:
    lines = [f"line {number}" for number in range(250)]
    ran = courier("publish", queue, "--lines", stdin="\n".join(lines).encode())
    assert ran.out == "published 250 messages\n"
    pulled: list[object] = []
    while found := courier("pull", queue, "--count", "100", "--ack", "--json").json:
        pulled += [message["body"] for message in found]
    assert pulled == lines


def test_long_lines_are_spread_over_batches_that_fit(courier: Command, queue: str) -> None:
    lines = [letter * 100_000 for letter in "abcdefg"]
    courier("publish", queue, "--lines", stdin="\n".join(lines).encode())
    assert bodies(courier, queue) == lines


def test_no_lines_publish_nothing(courier: Command, queue: str) -> None:
    assert courier("publish", queue, "--lines").out == "published 0 messages\n"


def test_lines_may_be_json(courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", "--type", "json", stdin=b'{"a": 1}\n2\n')
    assert bodies(courier, queue) == [{"a": 1}, 2]


def test_a_bad_line_is_named_with_how_far_it_came(courier: Command, queue: str) -> None:
    stdin = b"1\n" * 150 + b"{\n" + b"2\n"
    ran = courier.attempt("publish", queue, "--lines", "--type", "json", stdin=stdin)
    assert ran.status == 2
    position, reason = ran.err.splitlines()
    assert position == "published 100 messages, up to line 100"
    assert reason.startswith("courier: line 151: the body is not JSON")


def test_a_batch_the_server_refuses_is_told_with_how_far_it_came(
    courier: Command, queue: str
) -> None:
    stdin = b"x\n" * 100 + b"y" * 130_000 + b"\n"
    ran = courier.attempt("publish", queue, "--lines", stdin=stdin)
    assert ran.status == 1
    position, reason = ran.err.splitlines()
    assert position == "published 100 messages, up to line 100"
    assert reason.endswith("[code: 10204]")


def test_a_line_that_never_ends_is_refused(courier: Command, queue: str) -> None:
    ran = courier.attempt("publish", queue, "--lines", stdin=b"z" * 1_000_000)
    assert ran.status == 2
    assert "a line is longer than 256000 bytes" in ran.err


def test_a_line_is_published_before_the_next_one_is_there(
    server: Server, courier: Command, queue: str
) -> None:
    with courier.start("publish", queue, "--lines", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"early\n")
        process.stdin.flush()
        wait_for_messages(server, queue, 1)
        assert process.communicate(b"late\n", timeout=30) == (b"published 2 messages\n", b"")
    assert bodies(courier, queue) == ["early", "late"]


def wait_for_messages(server: Server, queue: str, count: int) -> None:
    deadline = time.monotonic() + 30
    with server.client() as http:
        (found,) = http.get("/queues", params={"name": queue}).json()["result"]
        path = f"/queues/{found['queue_id']}/metrics"
        while http.get(path).json()["result"]["backlog_count"] != count:
            assert time.monotonic() < deadline, "the line was not published"


def test_a_terminal_sees_a_bar_and_a_pipe_sees_lines(
    courier: Command, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x\n" * 20_500)
    ours, theirs = pty.openpty()
    with (
        file.open("rb") as stdin,
        open(ours, "rb", buffering=0) as terminal,
        courier.start("publish", queue, "--lines", stdin=stdin, stderr=theirs) as process,
    ):
        os.close(theirs)
        drawn = b""
        while b"\n" not in drawn:
            drawn += terminal.read(65_536)
        assert process.communicate(timeout=30)[0] == b"published 20500 messages\n"
    assert drawn.split(b"\r")[-2] == b"[" + b"#" * 30 + b"] 20500 messages published"
    ran = courier("publish", queue, "--lines", stdin=file.read_bytes())
    assert ran.err == "10000 messages published\n20000 messages published\n"


def test_a_message_over_the_limit_is_refused(courier: Command, queue: str) -> None:
    line = courier.fails(1, "publish", queue, "-", stdin=b"x" * 128_001)
    assert line.endswith("[code: 10204]")


def test_a_body_over_the_cap_of_the_server_gets_its_answer(courier: Command, queue: str) -> None:
    line = courier.fails(1, "publish", queue, "-", stdin=b"x" * 15_000_000)
    assert "[code: " in line


@pytest.mark.parametrize(
    "args", [("publish", "BODY"), ("pull",), ("peek",), ("ack", "LEASE"), ("redrive",)]
)
def test_a_queue_that_does_not_exist_is_refused(
    courier: Command, queue_name: str, args: tuple[str, ...]
) -> None:
    line = courier.fails(1, args[0], queue_name, *args[1:])
    assert line.startswith(f"courier: queue '{queue_name}' does not exist")


def test_pull_shows_the_lease_unless_it_acks(courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", stdin=b"a\nb\n")
    first = courier("pull", queue, "--count", "1")
    assert first.out.split()[:5] == ["ID", "ATTEMPT", "PUBLISHED", "LEASE", "BODY"]
    second = courier("pull", queue, "--count", "1", "--ack")
    assert second.out.split()[:4] == ["ID", "ATTEMPT", "PUBLISHED", "BODY"]
    assert [first.rows[0][-1], second.rows[0][-1]] == ["a", "b"]


def test_a_short_lease_ends_and_the_message_comes_again(courier: Command, queue: str) -> None:
    courier("publish", queue, "again")
    courier("pull", queue, "--lease", "0s")
    (message,) = courier("pull", queue, "--json").json
    assert message["attempt"] == 2


def test_peek_leases_nothing(courier: Command, queue: str) -> None:
    courier("publish", queue, "x")
    assert courier("peek", queue, "--json").json[0]["attempt"] == 0
    assert courier("pull", queue, "--json").json[0]["attempt"] == 1
    assert courier("peek", queue).rows == []


def test_a_retried_message_is_handed_out_again(courier: Command, queue: str) -> None:
    courier("publish", queue, "x")
    (message,) = courier("pull", queue, "--json").json
    said = courier("ack", queue, message["lease"], "--retry").out
    assert said == "1 message will be handed out again\n"
    (message,) = courier("pull", queue, "--json").json
    assert message["attempt"] == 2
    courier("ack", queue, message["lease"], "--retry", "--delay", "1h")
    assert courier("pull", queue, "--json").json == []


def test_a_lease_that_cannot_be_settled_is_named(courier: Command, queue: str) -> None:
    courier("publish", queue, "x")
    (message,) = courier("pull", queue, "--json").json
    line = courier.fails(1, "ack", queue, "nonsense", message["lease"])
    assert line.startswith("courier: 1 message settled, but nonsense: ")


def bury(courier: Command, queue: str, *texts: str) -> str:
    """Let messages run out of attempts, and return the name of the queue they went to."""
    dead = f"{queue}-dead"
    courier("queue", "create", queue, "--max-retries", "0", "--dead-letter", dead)
    courier("publish", queue, "--lines", stdin="\n".join(texts).encode())
    leases = [m["lease"] for m in courier("pull", queue, "--count", "100", "--json").json]
    courier("ack", queue, *leases, "--retry")
    return dead


def test_dead_letters_go_back_where_they_came_from(courier: Command, queue_name: str) -> None:
    dead = bury(courier, queue_name, "a", "b", "c")
    assert courier("redrive", dead, "--dry-run").out == "would redrive 3 messages\n"
    assert len(bodies(courier, dead)) == 3
    assert courier("redrive", dead).out == "redrove 3 messages\n"
    assert bodies(courier, dead) == []
    assert sorted(map(str, bodies(courier, queue_name))) == ["a", "b", "c"]


def test_only_the_named_dead_letters_go_back(courier: Command, queue_name: str) -> None:
    dead = bury(courier, queue_name, "a", "b")
    found = courier("peek", dead, "--json").json
    chosen = next(message["id"] for message in found if message["body"] == "b")
    answer = courier("redrive", dead, "--json", chosen, "0" * 32).json
    assert answer == {"redriven": 1, "skipped": 1, "reasons": {"not_found": 1}}
    assert bodies(courier, queue_name) == ["b"]
    assert bodies(courier, dead) == ["a"]


def test_a_pull_says_what_a_queue_without_a_consumer_lacks(
    courier: Command, queue_name: str
) -> None:
    dead = bury(courier, queue_name, "a")
    said = courier.fails(1, "pull", dead)
    [command] = re.findall(r"`courier (.*)`", said)
    courier(*command.split())
    assert [message["body"] for message in courier("pull", dead, "--json").json] == ["a"]


def test_a_name_is_not_empty(courier: Command, queue: str) -> None:
    for args in (("worker", "add", "", "http://w"), ("listener", "show", queue, "")):
        assert "a name must not be empty" in courier.fails(2, *args)


def test_a_redrive_says_why_it_skipped(courier: Command, queue_name: str) -> None:
    dead = bury(courier, queue_name, "a", "b")
    courier("queue", "update", dead, "--lease", "1h")
    courier("publish", dead, "never buried")
    courier("pull", dead, "--count", "1")
    said = courier("redrive", dead, "0" * 32, *ids_on(courier, dead)).out
    assert said.startswith("redrove 1 message\n")
    assert "skipped 1 message: no such message on this queue\n" in said
    assert "skipped 1 message: not a dead letter" in said
    assert "skipped 1 message: leased by a consumer" in courier("redrive", dead).out
    courier("queue", "delete", queue_name)
    other = bury(courier, f"{queue_name}-2", "a")
    courier("queue", "delete", f"{queue_name}-2")
    assert "buried from a queue that was deleted" in courier("redrive", other).out


def ids_on(courier: Command, queue: str) -> list[str]:
    return [message["id"] for message in courier("peek", queue, "--count", "9", "--json").json]


def test_a_message_shows_its_life_and_why_it_is_late(courier: Command, queue_name: str) -> None:
    dead = bury(courier, queue_name, "a")
    [id] = ids_on(courier, dead)
    shown = courier("message", "show", id).out
    kinds = re.findall(r" (\w+) +\S+ +(?:attempt|by) .*cloudflare", shown)
    assert kinds == ["published", "leased", "retried", "buried"]
    assert f"It is a dead letter of {queue_name}, and nobody leases from this queue" in shown
    assert f"into {dead}" in shown
    courier("queue", "update", dead, "--lease", "1h")
    courier("pull", dead, "--ack")
    over = courier("message", "show", id, "--json").json
    assert over["over"] and over["life"]["steps"][-1]["kind"] == "acked"
    assert over["took"] in courier("message", "show", id, "--queue", dead).out
    assert "on no queue" in courier.fails(1, "message", "show", "nothing")


def test_a_reader_that_goes_away_is_no_failure_worth_a_word(courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", stdin=(b"x" * 100_000 + b"\n") * 20)
    with courier.start("peek", queue, "--count", "20") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_an_empty_stdin_is_refused_and_an_empty_body_is_not(courier: Command, queue: str) -> None:
    assert "stdin was empty" in courier.fails(2, "publish", queue, "-", stdin=b"")
    courier("publish", queue, "")
    assert [message["body"] for message in courier("peek", queue, "--json").json] == [""]


@pytest.mark.parametrize("command", ["queue", "tenant"])
def test_a_bad_name_is_refused_in_words(courier: Command, command: str) -> None:
    line = courier.fails(1, command, "create", "Not a name!")
    assert "must have 1 to 63" in line and "letters" in line and "Not a name!" in line
    assert "regex" not in line
