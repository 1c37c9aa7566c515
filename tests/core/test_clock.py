import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from courier.clock import (
    FOLLOW_EVERY_MS,
    SLEW_MAX,
    STEP_MS,
    ManualClock,
    SteadyClock,
    SystemClock,
    start_ms,
)
from courier.clock_record import RECORD_MS_MAX, ClockRecord

MS_NS = 1_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000
WAIT_MS = 60_000
# Times are cut to whole milliseconds, on both sides.
WHOLE_MS = 2


class World:
    """Real time that passes when told to, and a wall clock that may be set."""

    def __init__(self, *, step_wait_ms: int = WAIT_MS) -> None:
        self.elapsed_ns = 12_345 * MS_NS
        self.set_ms = 0
        self.doubts: list[int] = []
        self._boot_ms = NOW_MS - self.elapsed_ns // MS_NS
        self.clock = SteadyClock(
            NOW_MS,
            step_wait_ms=step_wait_ms,
            doubted=self.doubts.append,
            wall_ns=self.wall_ns,
            elapsed_ns=lambda: self.elapsed_ns,
        )

    def wall_ns(self) -> int:
        return self.elapsed_ns + (self._boot_ms + self.set_ms) * MS_NS

    @property
    def offset_ms(self) -> int:
        return self.clock.wall_ms() - self.clock.now_ms()

    def passes(self, ms: float) -> int:
        """Time passes, in which the clock is looked at as often as by a server; the time then."""
        until_ns = self.elapsed_ns + round(ms * MS_NS)
        while self.elapsed_ns < until_ns:
            self.elapsed_ns = min(until_ns, self.elapsed_ns + 50 * MS_NS)
            now_ms = self.clock.now_ms()
        return now_ms


def test_the_system_clock_tells_the_time_in_whole_milliseconds() -> None:
    before_ms = time.time_ns() // MS_NS
    now_ms = SystemClock().now_ms()
    after_ms = time.time_ns() // MS_NS
    assert isinstance(now_ms, int)
    assert before_ms <= now_ms <= after_ms


def test_the_system_clock_never_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    told_ns = iter([5_000_000, 9_999_999, 2_000_000, 9_000_000, 10_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(told_ns))
    clock = SystemClock()
    assert [clock.now_ms() for _ in range(5)] == [5, 9, 9, 9, 10]


def test_a_manual_clock_moves_when_told_to() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == clock.now_ms() == clock.wall_ms() == 1_000
    clock.advance(1)
    assert clock.now_ms() == 1_001


def test_the_clocks_of_the_machine_agree_with_the_steady_clock() -> None:
    clock = SteadyClock(time.time_ns() / MS_NS, step_wait_ms=WAIT_MS)
    began_ms, began_s = clock.now_ms(), time.monotonic()
    assert isinstance(began_ms, int)
    time.sleep(0.3)
    passed_ms = (time.monotonic() - began_s) * 1000
    assert abs(clock.now_ms() - began_ms - passed_ms) < 0.2 * passed_ms
    assert clock.steps == 0


# --- small differences ---


@pytest.mark.parametrize("ms", [-STEP_MS, -1_000, -3, 3, 1_000, STEP_MS])
def test_a_small_difference_is_slewed_away(ms: int) -> None:
    world = World()
    began_ms = world.clock.now_ms()
    world.set_ms = ms
    half_ms = abs(ms) / SLEW_MAX / 2
    assert abs(world.passes(half_ms) - began_ms - half_ms) <= half_ms * SLEW_MAX + WHOLE_MS
    world.passes(half_ms + 2 * FOLLOW_EVERY_MS)
    assert abs(world.offset_ms) <= 1
    assert world.clock.steps == 0


# --- steps ---


@pytest.mark.parametrize("ms", [-15 * DAY_MS, -HOUR_MS, HOUR_MS, 15 * DAY_MS])
def test_a_step_that_does_not_last_changes_nothing(ms: int) -> None:
    world = World()
    world.passes(1_000)
    began_ms = world.clock.now_ms()
    world.set_ms = ms
    assert abs(world.passes(WAIT_MS - 200) - began_ms - (WAIT_MS - 200)) <= WHOLE_MS
    assert world.clock.steps == 1
    assert world.doubts == [pytest.approx(max(0, ms), abs=1)]
    world.set_ms = 0
    assert abs(world.passes(HOUR_MS) - began_ms - (WAIT_MS - 200) - HOUR_MS) <= WHOLE_MS
    assert world.doubts[1:] == [0]
    assert abs(world.offset_ms) <= 1


@pytest.mark.parametrize("ms", [STEP_MS + 1_000, HOUR_MS, 15 * DAY_MS])
def test_a_step_ahead_that_lasts_is_adopted_in_one_jump(
    ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    began_ms = world.clock.now_ms()
    world.set_ms = ms
    assert abs(world.passes(WAIT_MS) - began_ms - WAIT_MS) <= WHOLE_MS
    assert world.doubts == [pytest.approx(ms, abs=1)]
    world.passes(2 * FOLLOW_EVERY_MS)
    assert world.doubts[1:] == [0]
    assert abs(world.offset_ms) <= 1
    assert [record.message for record in caplog.records] == ["clock_step", "clock_step_adopted"]


def test_a_step_back_that_lasts_is_slewed_and_time_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    began_ms = world.clock.now_ms()
    world.set_ms = -HOUR_MS
    assert abs(world.passes(WAIT_MS) - began_ms - WAIT_MS) <= WHOLE_MS
    slowed_ms = world.passes(1_000)
    assert abs(world.passes(100_000) - slowed_ms - 100_000 * (1 - SLEW_MAX)) <= 100
    world.passes(HOUR_MS / SLEW_MAX)
    assert abs(world.offset_ms) <= 1
    said = [record.message for record in caplog.records]
    assert said == ["clock_step", "clock_slowed"]
    assert world.clock.steps == 1


def test_a_step_that_becomes_another_must_last_again() -> None:
    world = World()
    world.set_ms = HOUR_MS
    world.passes(WAIT_MS - 1_000)
    world.set_ms = 15 * DAY_MS
    world.passes(WAIT_MS - 1_000)
    assert world.offset_ms == pytest.approx(15 * DAY_MS, abs=WHOLE_MS)
    assert world.clock.steps == 2
    world.passes(2_000)
    assert abs(world.offset_ms) <= 1


def test_a_sleep_of_the_machine_is_no_step() -> None:
    """Elapsed time includes it, so both clocks pass it alike."""
    world = World()
    world.set_ms = -1_000
    world.passes(1_000)
    before_ms = world.clock.now_ms()
    world.elapsed_ns += 8 * HOUR_MS * MS_NS
    assert abs(world.clock.now_ms() - before_ms - 8 * HOUR_MS) <= FOLLOW_EVERY_MS * SLEW_MAX + 1
    assert world.clock.steps == 0


moves = st.lists(
    st.tuples(
        # Nobody sees what the wall clock shows between two looks.
        st.floats(FOLLOW_EVERY_MS + 1, 30_000),
        st.floats(0, 1),
        st.one_of(
            st.none(),
            st.integers(-20 * DAY_MS, 20 * DAY_MS),
            st.integers(-2 * STEP_MS, 2 * STEP_MS),
        ),
    ),
    min_size=20,
    max_size=60,
)


@settings(deadline=None, max_examples=100)
@given(moves, st.sampled_from([100, 5_000, WAIT_MS]))
def test_time_never_runs_backwards_nor_off_the_rate_but_by_adopting_what_lasted(
    moves: list[tuple[float, float, int | None]], wait_ms: int
) -> None:
    world = World(step_wait_ms=wait_ms)
    now_ms = world.clock.now_ms()
    last_ns = since_ns = world.elapsed_ns
    for pause_ms, part, set_ms in moves:
        for passed_ms in (pause_ms * part, pause_ms * (1 - part)):
            world.elapsed_ns += round(passed_ms * MS_NS)
            passed_ms = (world.elapsed_ns - last_ns) / MS_NS
            before_ms, now_ms, last_ns = now_ms, world.clock.now_ms(), world.elapsed_ns
            assert now_ms >= before_ms
            gained_ms = now_ms - before_ms - passed_ms
            if abs(gained_ms) > passed_ms * SLEW_MAX + WHOLE_MS:
                # It jumped: to the wall clock, from far behind, when that had stood there for long.
                assert abs(world.offset_ms) <= 1
                assert gained_ms > STEP_MS - passed_ms * SLEW_MAX - WHOLE_MS
                assert last_ns - since_ns >= wait_ms * MS_NS
        if set_ms is not None:
            if abs(set_ms - world.set_ms) > STEP_MS:
                since_ns = world.elapsed_ns
            world.set_ms = set_ms


# --- starts ---


@pytest.mark.parametrize(
    ("wall_ms", "journal_ms", "record_ms", "expected_ms"),
    [
        pytest.param(NOW_MS, 0, None, NOW_MS, id="no events: the wall clock"),
        pytest.param(NOW_MS, 0, NOW_MS + 5, NOW_MS, id="no events, whatever is recorded"),
        pytest.param(NOW_MS, NOW_MS - STEP_MS, None, NOW_MS, id="a short stop"),
        pytest.param(NOW_MS, NOW_MS - STEP_MS - 1, None, NOW_MS - STEP_MS - 1, id="a long stop"),
        pytest.param(NOW_MS, NOW_MS + 1, None, NOW_MS + 1, id="the wall clock is behind"),
        pytest.param(NOW_MS, NOW_MS + HOUR_MS, None, NOW_MS + HOUR_MS, id="far behind"),
        pytest.param(NOW_MS, NOW_MS - DAY_MS, NOW_MS - 7, NOW_MS - 7, id="the same boot"),
        pytest.param(NOW_MS, NOW_MS + 3, NOW_MS - 7, NOW_MS + 3, id="never before the journal"),
    ],
)
def test_a_start_goes_on_where_the_journal_ends(
    wall_ms: int, journal_ms: int, record_ms: int | None, expected_ms: int
) -> None:
    assert start_ms(wall_ms=wall_ms, journal_ms=journal_ms, record_ms=record_ms) == expected_ms


def record(path: Path, elapsed_ns: Callable[[], int], boot_id: str = "this") -> ClockRecord:
    return ClockRecord(path / "clock.json", boot_id=boot_id, elapsed_ns=elapsed_ns)


def test_a_record_tells_the_time_under_the_same_boot(tmp_path: Path) -> None:
    world = World()
    kept = record(tmp_path, lambda: world.elapsed_ns)
    boot_ms = kept.boot_ms(NOW_MS)
    world.elapsed_ns += DAY_MS * MS_NS  # however late it is written
    kept.keep(boot_ms)
    assert record(tmp_path, lambda: world.elapsed_ns).read() == NOW_MS + DAY_MS
    assert record(tmp_path, lambda: world.elapsed_ns, "another").read() is None
    assert record(tmp_path, lambda: world.elapsed_ns, "").read() is None
    assert (tmp_path / "clock.json").stat().st_mode & 0o777 == 0o600


def test_a_record_is_written_again_when_time_has_moved_against_it(tmp_path: Path) -> None:
    world = World()
    kept = record(tmp_path, lambda: world.elapsed_ns)
    kept.keep(kept.boot_ms(NOW_MS))
    kept.keep(kept.boot_ms(NOW_MS + RECORD_MS_MAX - 1))
    assert kept.read() == NOW_MS
    kept.keep(kept.boot_ms(NOW_MS + RECORD_MS_MAX))
    assert kept.read() == NOW_MS + RECORD_MS_MAX


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"boot_id": "this"}', '{"boot_id": "this", "boot_ms": "1"}']
)
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)
    assert record(tmp_path, lambda: 0).read() is None


def test_no_flipped_bit_of_a_record_changes_the_time(tmp_path: Path) -> None:
    """An hour, a month or a century ahead, every message would have expired."""
    kept = record(tmp_path, lambda: 0)
    kept.keep(NOW_MS)
    [path] = tmp_path.iterdir()
    good = path.read_bytes()
    for place in range(8 * len(good)):
        spoilt = bytearray(good)
        spoilt[place // 8] ^= 1 << place % 8
        path.write_bytes(spoilt)
        assert kept.read() in (None, NOW_MS), bytes(spoilt)


def test_without_a_boot_id_nothing_is_recorded(tmp_path: Path) -> None:
    record(tmp_path, lambda: 0, "").keep(NOW_MS)
    assert not list(tmp_path.iterdir())
