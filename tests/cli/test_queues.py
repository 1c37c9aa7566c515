"""`courier queue`."""

from typing import Any

import pytest

from tests.cli.command import Command

pytestmark = pytest.mark.slow


def properties(courier: Command, queue: str) -> dict[str, str]:
    """What `queue show` prints."""
    return {row[0]: row[1] for row in courier("queue", "show", queue).rows}


def listed(courier: Command) -> dict[str, dict[str, Any]]:
    return {queue["queue_name"]: queue for queue in courier("queue", "list", "--json").json}


def test_a_created_queue_is_listed_with_a_pull_consumer(courier: Command, queue: str) -> None:
    rows = {row[0]: row[1:] for row in courier("queue", "list").rows}
    assert rows[queue][:4] == ["http_pull", "0s", "4d", "no"]
    assert listed(courier)[queue]["consumers_total_count"] == 1


def test_a_queue_can_be_created_without_a_consumer(courier: Command, queue_name: str) -> None:
    courier("queue", "create", queue_name, "--no-consumer")
    assert listed(courier)[queue_name]["consumers"] == []
    assert "pull" in courier.fails(1, "pull", queue_name)


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
    assert courier("queue", "purge", queue).out == f"purged queue '{queue}' of 250 messages\n"
    assert properties(courier, queue)["messages"] == "0"


def test_a_deleted_queue_is_no_longer_listed(courier: Command, queue: str) -> None:
    courier("queue", "delete", queue)
    assert queue not in listed(courier)
