"""`courier queue`."""

import re
import signal
from typing import Any

import pytest

from tests.cli.command import Command

pytestmark = pytest.mark.slow


def properties(courier: Command, queue: str) -> dict[str, str]:
    """What `queue show` prints."""
    return {row[0]: row[1] for row in courier("queue", "show", queue).rows}


def listed(courier: Command, *flags: str) -> dict[str, dict[str, Any]]:
    return {queue["name"]: queue for queue in courier("queue", "list", "--json", *flags).json}


def test_a_created_queue_has_a_pull_consumer(courier: Command, queue: str) -> None:
    assert courier("queue", "show", queue, "--json").json["consumers_total_count"] == 1


def test_a_queue_can_be_created_without_a_consumer(courier: Command, queue_name: str) -> None:
    courier("queue", "create", queue_name, "--no-consumer")
    assert courier("queue", "show", queue_name, "--json").json["consumers"] == []
    assert "pull" in courier.fails(1, "pull", queue_name)


def test_the_list_shows_what_each_queue_holds_and_does(courier: Command, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    courier("queue", "create", queue_name, "--max-retries", "0", "--dead-letter", dead)
    courier("publish", queue_name, "--lines", stdin=b"x\n" * 6)
    courier("publish", queue_name, "later", "--delay", "1h")
    taken = courier("pull", queue_name, "--count", "4", "--lease", "1h", "--json").json
    courier("ack", queue_name, taken[0]["lease"])
    courier("ack", queue_name, taken[1]["lease"], "--retry")
    courier("queue", "pause", queue_name)
    row = listed(courier, "--sort", "waiting")[queue_name]
    assert [row[name] for name in ("waiting", "leased", "delayed", "dead_letters")] == [2, 2, 1, 1]
    assert row["in_rate"] > row["out_rate"] > 0 < row["oldest_age_ms"]
    assert row["paused"] and row["state"]
    [shown] = [cells for cells in courier("queue", "list").rows if cells[0] == queue_name]
    assert shown[1:4] == ["2", "2", "1"] and shown[7:] == ["1", row["state"]]
    ordered = [one["waiting"] for one in listed(courier, "--sort", "waiting").values()]
    assert ordered == sorted(ordered, reverse=True)
    assert list(listed(courier)) == sorted(listed(courier))


def test_top_says_what_needs_a_look_first(courier: Command, queue: str) -> None:
    courier("publish", queue, "x")
    courier("queue", "pause", queue)
    shown = courier("top").out
    assert re.match(r"\d+ queues?, \d+ messages?; tenant default\n", shown)
    looks = [line for line in shown.splitlines() if line.startswith("! ")]
    assert looks and courier("top", "--json").json["looks"]
    assert "\nNAME " in shown


@pytest.mark.parametrize("command", [("queue", "list"), ("top",)])
def test_watching_goes_on_until_it_is_interrupted(
    courier: Command, queue: str, command: tuple[str, ...]
) -> None:
    with courier.start(*command, "--watch", "100ms") as process:
        assert process.stdout is not None
        waiting = (line.split()[1] for line in process.stdout if line.startswith(queue.encode()))
        assert next(waiting) == b"0"
        courier("publish", queue, "x")
        assert next(each for each in waiting if each != b"0") == b"1"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert (complaint, process.returncode) == (b"", 130)


def test_rules_given_at_creation_are_shown(courier: Command, queue_name: str) -> None:
    dead = f"{queue_name}-dead"
    made = courier(
        *("queue", "create", queue_name, "--delay", "30", "--retention", "2h", "--json"),
        *("--max-retries", "7", "--retry-delay", "5m", "--lease", "1500ms", "--dead-letter", dead),
    ).json
    assert made["settings"]["message_retention_period"] == 7_200
    shown = properties(courier, queue_name)
    assert shown["delay"] == "30s"
    assert shown["retention"] == "2h"
    assert shown["max retries"] == "7"
    assert shown["retry delay"] == "300"
    assert shown["visibility timeout ms"] == "1500"
    assert shown["dead letter"] == dead


def test_a_queue_whose_consumer_is_refused_is_not_left_behind(
    courier: Command, queue_name: str
) -> None:
    line = courier.fails(1, "queue", "create", queue_name, "--max-retries", "101")
    assert "[code: 100127]" in line
    assert queue_name not in listed(courier)


def test_a_name_that_is_taken_is_refused_with_the_words_of_the_server(
    courier: Command, queue: str
) -> None:
    line = courier.fails(1, "queue", "create", queue)
    assert line.startswith(f"courier: Queue name '{queue}' is already taken.")
    assert line.endswith("[code: 11009]")


@pytest.mark.parametrize("verb", ["show", "delete", "pause", "resume", "purge"])
def test_a_queue_that_does_not_exist_is_refused(
    courier: Command, queue_name: str, verb: str
) -> None:
    line = courier.fails(1, "queue", verb, queue_name)
    assert line == f"courier: queue '{queue_name}' does not exist"


def test_update_changes_what_is_named_and_leaves_the_rest(courier: Command, queue: str) -> None:
    courier("queue", "update", queue, "--delay", "10", "--lease", "45s", "--max-retries", "9")
    courier("queue", "update", queue, "--retention", "1d", "--retry-delay", "2")
    shown = properties(courier, queue)
    assert shown["delay"] == "10s"
    assert shown["retention"] == "1d"
    assert shown["max retries"] == "9"
    assert shown["retry delay"] == "2"
    assert shown["visibility timeout ms"] == "45000"


def test_update_can_rename(courier: Command, queue: str) -> None:
    courier("queue", "update", queue, "--rename", f"{queue}-new")
    names = listed(courier)
    assert f"{queue}-new" in names
    assert queue not in names


def test_update_sets_and_takes_away_the_dead_letter_queue(courier: Command, queue: str) -> None:
    dead = f"{queue}-dead"
    made = courier("queue", "update", queue, "--dead-letter", dead, "--json").json
    assert made["consumers"][0]["dead_letter_queue"] == dead
    courier("queue", "update", queue, "--no-dead-letter")
    assert properties(courier, queue)["dead letter"] == "-"


def test_update_gives_a_consumer_to_a_queue_that_has_none(
    courier: Command, queue_name: str
) -> None:
    courier("queue", "create", queue_name, "--no-consumer")
    courier("queue", "update", queue_name, "--max-retries", "2")
    assert properties(courier, queue_name)["max retries"] == "2"


def test_an_update_that_names_nothing_is_a_usage_error(courier: Command, queue: str) -> None:
    assert "name at least one thing to change" in courier.fails(2, "queue", "update", queue)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--lease 13h", "--lease: must be at most 12h, not 13h"),
        ("--retention 1s", "--retention: must be at least 1m, not 1s"),
        ("--delay 2d", "--delay: must be at most 1d, not 2d"),
        ("--retry-delay 2d", "--retry-delay: must be at most 1d, not 2d"),
    ],
)
def test_a_duration_out_of_range_is_refused_in_the_words_of_its_flag(
    courier: Command, queue: str, args: str, said: str
) -> None:
    assert said in courier.fails(1, "queue", "update", queue, *args.split())


def test_an_update_out_of_range_is_refused(courier: Command, queue: str) -> None:
    line = courier.fails(1, "queue", "update", queue, "--retention", "59s")
    assert "[code: 100128]" in line


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(courier: Command, queue: str) -> None:
    courier("publish", queue, "x")
    courier("queue", "pause", queue)
    assert properties(courier, queue)["paused"] == "yes"
    courier.fails(1, "pull", queue)
    courier("queue", "resume", queue)
    assert len(courier("pull", queue, "--json").json) == 1


def test_a_frozen_queue_takes_nothing_until_it_is_unfrozen(courier: Command, queue: str) -> None:
    courier("queue", "freeze", queue)
    courier.fails(1, "publish", queue, "x")
    courier("queue", "unfreeze", queue)
    courier("publish", queue, "x")
    assert properties(courier, queue)["messages"] == "1"


@pytest.mark.parametrize("verb", ["freeze", "unfreeze"])
def test_a_queue_that_does_not_exist_is_not_frozen(
    courier: Command, queue_name: str, verb: str
) -> None:
    assert "does not exist" in courier.fails(1, "queue", verb, queue_name)


def test_purge_leaves_nothing(courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", stdin=b"x\n" * 250)
    assert properties(courier, queue)["messages"] == "250"
    purged, undo = courier("queue", "purge", queue).out.splitlines()
    assert purged == f"purged 250 messages from queue '{queue}'"
    assert "nothing to delete" in courier("queue", "purge", queue, "--dry-run").out
    assert properties(courier, queue)["messages"] == "0"
    line = undo.removeprefix("undo it with: courier ")
    assert "Put back 250 messages" in courier(*line.split()).out
    assert properties(courier, queue)["messages"] == "250"


def test_purge_leaves_leased_messages_alone_unless_all_are_meant(
    courier: Command, queue: str
) -> None:
    courier("publish", queue, "--lines", stdin=b"x\n" * 5)
    courier("pull", queue, "--count", "2", "--lease", "10m")
    out = courier("queue", "purge", queue).out
    assert f"3 messages from queue '{queue}'; 2 messages left alone" in out
    assert (
        courier("queue", "purge", queue, "--all").out == f"purged 2 messages from queue '{queue}'\n"
    )
    assert properties(courier, queue)["messages"] == "0"
    assert "--all deletes every message" in courier.fails(
        2, "queue", "purge", queue, "--all", "--state", "waiting"
    )


def test_purge_takes_what_is_named_only(courier: Command, queue: str) -> None:
    courier("publish", queue, "early")
    courier("publish", queue, '{"a": {"b": "c"}}', "--type", "json")
    courier("publish", queue, "late", "--delay", "10m")
    for args, held in (
        (("--until", "1h"), 3),
        (("--since", "2096-01-01T00:00Z"), 3),
        (("--state", "leased"), 3),
        (("--search", "nothing of that"), 3),
        (("--state", "delayed"), 2),
        (("--search", "c", "--path", "a.b"), 1),
        (("--since", "1h"), 0),
    ):
        courier("queue", "purge", queue, *args)
        assert properties(courier, queue)["messages"] == str(held), args
    assert "--search" in courier.fails(2, "queue", "purge", queue, "--path", "a")
    assert "waiting" in courier.fails(2, "queue", "purge", queue, "--state", "late")


def test_a_dry_run_of_a_purge_can_be_run_later(courier: Command, queue: str) -> None:
    courier("publish", queue, "--lines", stdin=b"x\n" * 3)
    says, later = courier("queue", "purge", queue, "--dry-run").out.splitlines()
    assert says == f"would delete all 3 messages of queue '{queue}'"
    line = later.removeprefix("do it with: courier ").split()
    assert "Delete 3 messages" in courier(*line, "--dry-run").out
    assert properties(courier, queue)["messages"] == "3"
    assert "done: 3 done" in courier(*line).out
    assert properties(courier, queue)["messages"] == "0"


def test_a_deleted_queue_is_no_longer_listed(courier: Command, queue: str) -> None:
    courier("queue", "delete", queue)
    assert queue not in listed(courier)
