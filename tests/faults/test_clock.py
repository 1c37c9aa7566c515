"""The wall clock is set under a running server, and while it is stopped.

Nothing may end because of a step that does not last; what is due must end on time by a clock that
nobody sets, also after a step and a restart.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from courier.clock import SLEW_MAX
from tests.attack.environment import Environment, body
from tests.delivery.receiver import Receiver
from tests.faults.account import (
    backlog,
    bodies,
    create_queue,
    metrics_of,
    publish,
    pull,
    result,
    wait_until,
)
from tests.faults.connection import Connection
from tests.faults.push_crew import KeyChannel
from tests.faults.steered import SteeredServer

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
STEPS = {
    "an hour back": -HOUR_MS,
    "an hour ahead": HOUR_MS,
    "15 days ahead": 15 * 24 * HOUR_MS,
}
AHEAD = {name: ms for name, ms in STEPS.items() if ms > 0}
# What is leased and delayed ends after as long, in real time.
LEASE_S = DELAY_S = 4
# Beyond that, for requests, sweeps and a busy machine. What a step holds up is late by minutes.
LATE_S_MAX = 4.0
# Times are cut to milliseconds.
EARLY_S_MAX = 0.05
LONG_MS = 6 * HOUR_MS
POLL_S = 6
# What Anypoint's queues keep messages for.
TTL_MS = 7 * 24 * HOUR_MS
# No test takes as long as the first, and every one longer than the second.
NEVER_MS = 10 * 60_000
SOON_MS = 2_000
EVENTS_MAX = 1_000

Restart = Callable[[SteeredServer], None]


def live(server: SteeredServer) -> None:
    """The server runs on."""


def kill(server: SteeredServer) -> None:
    server.kill()
    server.start()


def reboot(server: SteeredServer) -> None:
    """All that the next process knows of time is in the journal."""
    server.kill()
    server.forget_boot()
    server.start()


# Not every step with every way to go on: what steps do to time is in tests/core/test_clock.py.
PAIRS_AHEAD = [("15 days ahead", live), ("an hour ahead", kill), ("an hour ahead", reboot)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SteeredServer]:
    """One that waits for longer than any test takes before it follows a step."""
    with SteeredServer(tmp_path, step_wait_ms=NEVER_MS).start() as server:
        yield server


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[SteeredServer]:
    """One that soon follows a step."""
    with SteeredServer(tmp_path, step_wait_ms=SOON_MS).start() as server:
        yield server


class Queues:
    """A message that is ready, one that is leased for LEASE_S, and one delayed by DELAY_S."""

    def __init__(self, server: SteeredServer) -> None:
        self._server = server
        with server.client() as client:
            self._ready = create_queue(client, "ready")
            self._leased = create_queue(client, "leased")
            self._delayed = create_queue(client, "delayed")
            publish(client, self._ready, "ready")
            publish(client, self._leased, "leased")
            self.begun_s = time.monotonic()
            assert pull(client, self._leased, lease_ms=LEASE_S * 1_000)
            publish(client, self._delayed, "delayed", delay_seconds=DELAY_S)
            self.done_s = time.monotonic()

    def all_is_there(self) -> None:
        with self._server.client() as client:
            counts = [backlog(client, path) for path in (self._ready, self._leased, self._delayed)]
        assert counts == [1, 1, 1]

    def end_on_time(self, *, lost_s: float = 0.0, slower: float = 0.0) -> None:
        """The lease and the delay end by real time, `lost_s` of which the server cannot know of."""
        waiting, ended_s = {self._leased, self._delayed}, dict[str, float]()
        due_s = self.done_s + (LEASE_S + lost_s) / (1 - slower)
        # They may have ended while the server started.
        until_s = max(due_s, time.monotonic()) + LATE_S_MAX
        with self._server.client() as client:
            while waiting and time.monotonic() < until_s:
                for path in list(waiting):
                    if pull(client, path, lease_ms=LONG_MS):
                        ended_s[path] = time.monotonic()
                        waiting.remove(path)
                time.sleep(0.05)
            assert not waiting, f"late: {waiting}, {ended_s}"
            early = [s for s in ended_s.values() if s < self.begun_s + LEASE_S - EARLY_S_MAX]
            assert not early, f"early: {early} after {self.begun_s}"
            assert bodies(pull(client, self._ready)) == ["ready"]


def metrics(server: SteeredServer) -> dict[str, float]:
    lines = metrics_of(server).splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def journal_times(server: SteeredServer) -> list[int]:
    with closing(Connection(server)) as connection:
        found = connection.journal(after=0, limit=EVENTS_MAX)
    return [event["at_ms"] for event in found]


def judge_times(server: SteeredServer) -> None:
    """Times never step back in the journal and in Discue's events, and no age is negative."""
    times = journal_times(server)
    assert times and all(earlier <= later for earlier, later in pairwise(times))
    with closing(KeyChannel(server)) as channel:
        events = channel.ask("GET", "/events?limit=1000")["events"]
    told = [event["stored_at"] for event in events]
    assert told and all(earlier <= later for earlier, later in pairwise(told))
    ages = {name: value for name, value in metrics(server).items() if "age_seconds" in name}
    assert ages and min(ages.values()) >= 0, ages


def said(server: SteeredServer) -> list[str]:
    return re.findall(r'"event":"(clock_[a-z_]+)"', server.log())


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("again", [live, kill, reboot])
def test_a_step_for_a_moment_ends_nothing_and_holds_nothing_up(
    server: SteeredServer, step: str, again: Restart
) -> None:
    queues = Queues(server)
    server.set_wall(STEPS[step])
    gone_s = time.monotonic()
    again(server)
    away_s = time.monotonic() - gone_s
    queues.all_is_there()
    wait_until(lambda: "clock_step" in said(server), "the step is not seen")
    assert metrics(server)["courier_clock_steps_total"] == 1
    offset_s = metrics(server)["courier_clock_offset_seconds"]
    assert offset_s == pytest.approx(STEPS[step] / 1000, abs=away_s + 1)
    server.set_wall(0)
    queues.end_on_time(lost_s=away_s if again is reboot else 0.0)
    judge_times(server)
    assert said(server)[0] == "clock_step"
    assert "clock_step_adopted" not in said(server)


@pytest.mark.parametrize("again", [kill, reboot])
def test_an_hour_ahead_before_a_restart_holds_nothing_up_after_it(
    server: SteeredServer, again: Restart
) -> None:
    """What the next process finds are the times that were written during the step."""
    server.set_wall(HOUR_MS)
    time.sleep(0.5)
    queues = Queues(server)
    server.set_wall(0)
    gone_s = time.monotonic()
    again(server)
    away_s = time.monotonic() - gone_s
    queues.all_is_there()
    queues.end_on_time(lost_s=away_s if again is reboot else 0.0)
    judge_times(server)


@pytest.mark.parametrize("step", ["an hour back", "15 days ahead"])
@pytest.mark.parametrize("lasts", [False, True], ids=["for a moment", "lasting"])
def test_long_polls_end_and_are_answered_on_time_over_a_step(
    tmp_path: Path, step: str, lasts: bool
) -> None:
    """One gets nothing, one what is published after the step, one what is no longer delayed."""
    wait_ms = SOON_MS // 4 if lasts else NEVER_MS
    with SteeredServer(tmp_path, step_wait_ms=wait_ms).start() as server:
        place = Environment(server)
        for name in ("empty", "published", "delayed"):
            place.put(f"/destinations/queues/{name}", {})
        delayed = {"body": "late", "headers": {"deliveryDelay": POLL_S * 500}}
        with ThreadPoolExecutor(3) as pool:
            begun_s = time.monotonic()
            sent = place.broker.ask("PUT", "/delayed/messages/late", body(delayed))
            assert sent.status == 201, sent
            names = ("empty", "published", "delayed")
            polls = [pool.submit(_polled, place, name) for name in names]
            time.sleep(0.5)
            server.set_wall(STEPS[step])
            time.sleep(1.0)
            now_s = time.monotonic()
            # A session of before may have ended with a step that is followed.
            broker = Environment(server).broker
            answer = broker.ask("PUT", "/published/messages/now", body({"body": "now"}))
            assert answer.status == 201, answer
            (empty, ended_s), (found, found_s), (late, late_s) = [each.result() for each in polls]
        assert (empty, found) == ([], ["now"])
        assert POLL_S - EARLY_S_MAX <= ended_s - begun_s <= POLL_S + LATE_S_MAX
        assert found_s - now_s <= LATE_S_MAX
        if lasts and STEPS[step] > TTL_MS:
            assert late == [], "it has expired, by the time that is followed now"
        else:
            assert late == ["late"]
            early_s = 0 if lasts and STEPS[step] > 0 else POLL_S / 2  # its delay is over at once
            assert early_s - EARLY_S_MAX <= late_s - begun_s <= POLL_S / 2 + LATE_S_MAX
        judge_times(server)


def _polled(place: Environment, queue: str) -> tuple[list[str], float]:
    """What a long poll gets, and when."""
    path = f"/{queue}/messages?pollingTime={POLL_S * 1_000}"
    answer = place.broker.ask("GET", path)
    assert answer.status in (200, 204), answer
    found = json.loads(answer.body) if answer.body else []
    return [each["body"] for each in found], time.monotonic()


@pytest.mark.parametrize(("step", "again"), PAIRS_AHEAD)
def test_a_step_ahead_that_lasts_is_followed_and_not_before(
    hasty: SteeredServer, step: str, again: Restart
) -> None:
    with hasty.client() as client:
        path = create_queue(client)
        publish(client, path, "leased")
        assert pull(client, path, lease_ms=HOUR_MS // 2)
    hasty.set_wall(AHEAD[step])
    stepped_s = time.monotonic()
    again(hasty)
    with hasty.client() as client:
        # Of an hour the lease ends, of 15 days the message.
        while backlog(client, path) and not pull(client, path, lease_ms=LONG_MS):
            assert time.monotonic() < stepped_s + 20, "the step is not followed"
            time.sleep(0.05)
        assert time.monotonic() - stepped_s >= SOON_MS / 1000
        assert backlog(client, path) == (1 if AHEAD[step] == HOUR_MS else 0)
    assert abs(metrics(hasty)["courier_clock_offset_seconds"]) < 1
    assert said(hasty)[-2:] == ["clock_step", "clock_step_adopted"]
    Queues(hasty).end_on_time()
    judge_times(hasty)


@pytest.mark.parametrize(("step", "again"), PAIRS_AHEAD)
def test_what_is_published_before_a_step_is_followed_outlives_it(
    hasty: SteeredServer, step: str, again: Restart
) -> None:
    """It is as after a long stop: the first messages must not be old when the time is right."""
    hasty.set_wall(AHEAD[step])
    again(hasty)
    wait_until(lambda: "clock_step" in said(hasty), "the step is not seen")
    with hasty.client() as client:
        queue = {"queue_name": "short", "settings": {"message_retention_period": 60}}
        path = f"/queues/{result(client.post('/queues', json=queue))['queue_id']}"
        result(client.post(f"{path}/consumers", json={"type": "http_pull"}))
        publish(client, path, "new")
        while "clock_step_adopted" not in said(hasty):
            time.sleep(0.05)
        time.sleep(1.0)
        assert bodies(pull(client, path)) == ["new"]


@pytest.mark.parametrize("again", [live, reboot])
def test_a_step_back_that_lasts_is_approached_slowly(hasty: SteeredServer, again: Restart) -> None:
    hasty.set_wall(-HOUR_MS)
    again(hasty)
    wait_until(lambda: said(hasty)[-2:] == ["clock_step", "clock_slowed"], "it is not followed")
    queues = Queues(hasty)
    queues.end_on_time(slower=SLEW_MAX)
    judge_times(hasty)
    assert metrics(hasty)["courier_clock_offset_seconds"] < -3_500


@pytest.mark.parametrize("again", [kill, reboot])
def test_a_step_back_that_has_lasted_does_not_stall_a_restart(
    hasty: SteeredServer, again: Restart
) -> None:
    hasty.set_wall(-HOUR_MS)
    wait_until(lambda: "clock_slowed" in said(hasty), "it is not followed")
    queues = Queues(hasty)
    gone_s = time.monotonic()
    again(hasty)
    away_s = time.monotonic() - gone_s
    queues.all_is_there()
    queues.end_on_time(lost_s=away_s if again is reboot else 0.0, slower=SLEW_MAX)
    judge_times(hasty)


@pytest.mark.parametrize("step", ["an hour back", "15 days ahead"])
def test_pushes_are_signed_by_the_wall_clock(server: SteeredServer, step: str) -> None:
    """Receivers compare with a clock of their own, which is as far ahead by then."""
    with Receiver() as receiver, closing(KeyChannel(server)) as channel:
        queue = channel.ask("POST", "/queues", {"name": "pushed"})["queue"]["id"]
        listener: dict[str, Any] = {
            "name": "mill",
            "notify_url": receiver.url("/mill"),
            "liveness_url": receiver.url("/live"),
        }
        channel.ask("POST", f"/queues/{queue}/listeners", listener)
        server.set_wall(STEPS[step])
        time.sleep(0.3)
        channel.ask("POST", f"/queues/{queue}/messages", {"name": "grain", "data": "x"})
        [came] = receiver.wait("/mill", 1)
    stamp_s = int(came.headers["webhook-timestamp"])
    assert abs(stamp_s - time.time() - STEPS[step] / 1_000) < 30


def test_the_reset_of_a_rate_limit_is_told_by_the_wall_clock(server: SteeredServer) -> None:
    key = {"X-API-KEY": server.credentials["discue"]["api_key"]}
    for step_ms in STEPS.values():
        server.set_wall(step_ms)
        time.sleep(0.3)
        answer = httpx.get(f"{server.url}/v1/queues", headers=key, trust_env=False, verify=False)
        reset_s = int(answer.headers["x-ratelimit-reset"])
        assert abs(reset_s - time.time() - step_ms / 1_000) < 30


def test_settings_made_during_a_step_keep_their_order(hasty: SteeredServer) -> None:
    with hasty.client() as client:
        for number, ahead_ms in enumerate((0, HOUR_MS, -HOUR_MS, 0)):
            hasty.set_wall(ahead_ms)
            time.sleep(0.2)
            result(client.post("/queues", json={"queue_name": f"q{number}"}))
        names = [queue["queue_name"] for queue in result(client.get("/queues"))]
    assert names == ["q0", "q1", "q2", "q3"]
    judge_times(hasty)
