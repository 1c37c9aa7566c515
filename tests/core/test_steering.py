"""Servers that share a database go by its clock."""

import logging

import pytest

from courier.steering import OFF_MS_MAX, Steering
from courier.store.disk_postgres import database_time
from courier.store.disk_postgres.database_time import SAMPLES, DatabaseTime
from courier.telemetry import steering_metrics

MS_NS = 1_000_000


class Machine:
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.elapsed_ms = 5_000
        self.ahead_ms = self.wall_ms - self.elapsed_ms
        self.steering = Steering(
            lambda: self.ahead_ms * MS_NS,
            wall_ns=lambda: self.wall_ms * MS_NS,
            elapsed_ns=lambda: self.elapsed_ms * MS_NS,
        )


def test_time_is_the_databases_whatever_the_wall_clock_says() -> None:
    machine = Machine()
    was_ns = machine.steering.now_ns()
    machine.wall_ms += 3_600_000
    machine.elapsed_ms += 10
    assert machine.steering.now_ns() == was_ns + 10 * MS_NS
    assert machine.steering.off_ms() == 3_600_000 - 10


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_differs_is_logged_once_and_so_is_its_return(
    sign: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    machine = Machine()
    for off_ms in (OFF_MS_MAX, OFF_MS_MAX + 1, OFF_MS_MAX + 50, OFF_MS_MAX, 0):
        machine.wall_ms = machine.ahead_ms + machine.elapsed_ms + sign * off_ms
        machine.steering.look()
    said = [record.message for record in caplog.records]
    assert said == ["clock_differs_from_database", "clock_agrees_with_database"]
    (metric,) = steering_metrics(machine.steering)
    assert metric.text().endswith(b"courier_database_clock_offset_seconds 0.0\n")


def test_the_fastest_of_the_last_answers_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    time, now_ns = DatabaseTime(), 0
    monkeypatch.setattr(database_time, "elapsed_ns", lambda: now_ns)

    def answer(took_ms: int, ahead_ms: int) -> None:
        """A database that reads its clock as late as it can."""
        nonlocal now_ns
        asked_ns, now_ns = now_ns, now_ns + took_ms * MS_NS
        time.answered(now_ns // 1_000 + ahead_ms * 1_000, asked_ns=asked_ns)

    answer(400, 1_000)
    assert time.ahead_ns() == 1_200 * MS_NS
    answer(2, 1_000)
    answer(600, 1_000)
    assert time.ahead_ns() == 1_001 * MS_NS
    for _ in range(SAMPLES):
        answer(4, 2_000)
    assert time.ahead_ns() == 2_002 * MS_NS
