import time

import pytest

from courier.clock import ManualClock, SystemClock


def test_the_system_clock_tells_the_time_in_whole_milliseconds() -> None:
    before_ms = time.time_ns() // 1_000_000
    now_ms = SystemClock().now_ms()
    after_ms = time.time_ns() // 1_000_000
    assert isinstance(now_ms, int)
    assert before_ms <= now_ms <= after_ms


def test_the_system_clock_never_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    told_ns = iter([5_000_000, 9_999_999, 2_000_000, 9_000_000, 10_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(told_ns))
    clock = SystemClock()
    assert [clock.now_ms() for _ in range(5)] == [5, 9, 9, 9, 10]


def test_a_manual_clock_moves_when_told_to() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == clock.now_ms() == 1_000
    clock.advance(1)
    assert clock.now_ms() == 1_001
