"""A request to end that comes as a signal, and whoever waits for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from courier.lake.end import SAME_S, End, EndRequest
from tests.lake.processes import CONTAINER, first_of

# Says every tenth of a second whether it was asked to end, and does not.
BUSY = """
import signal, time
from courier.lake.end import SAME_S, End
from tests.lake.processes import CONTAINER, first_of
end = End()
end.heed((signal.SIGINT, signal.SIGTERM))
while True:
    print(end.is_set(), flush=True)
    time.sleep(0.1)
"""
LATER_S = 0.2
WAIT_S_MAX = 30.0
STEPS_MIN = 4


@contextmanager
def signalled(end: End, *, step: int) -> Iterator[None]:
    """With the line of Python that comes as this one from now on comes a signal, which sets it."""
    passed = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal passed
        passed += event == "line"
        if event == "line" and passed == step:
            signal.raise_signal(signal.SIGUSR1)
        return trace

    handler = signal.signal(signal.SIGUSR1, lambda *_: end.set())
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGUSR1, handler)


@pytest.mark.timeout(60)
def test_the_signal_may_come_at_any_step_of_a_wait() -> None:
    """Also where a `threading.Event` holds its lock, and would wait for itself."""
    step, was_set = 0, True
    while was_set:
        step, end = step + 1, End()
        with signalled(end, step=step):
            end.wait(0)
        was_set = end.is_set()
    assert step > STEPS_MIN


def test_a_wait_ends_when_it_is_set_and_does_not_begin_after_that() -> None:
    end = End()
    assert not end.wait(0.01)
    threading.Timer(LATER_S, end.set).start()
    began_s = time.monotonic()
    assert end.wait(WAIT_S_MAX) and end.wait(WAIT_S_MAX)
    assert LATER_S / 2 < time.monotonic() - began_s < WAIT_S_MAX


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        try:
            assert busy.stdout.readline() == "False\n"
            # A supervisor may send it to a process and to its group, which is one request.
            for _ in range(2):
                busy.terminate()
                while busy.stdout.readline() == "False\n":
                    pass
            assert busy.poll() is None
            time.sleep(SAME_S)
            busy.send_signal(number)
            assert busy.wait(WAIT_S_MAX) == -number
        finally:
            busy.kill()


def test_the_first_process_of_a_container_is_ended_by_a_second_signal_too() -> None:
    """The kernel delivers no default action to it."""
    inside = [*CONTAINER, sys.executable, "-c", BUSY]
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        try:
            assert busy.stdout.readline() == "False\n"
            first = first_of(busy.pid)
            os.kill(first, signal.SIGTERM)
            while busy.stdout.readline() == "False\n":
                pass
            os.kill(first, signal.SIGINT)
            assert busy.wait(WAIT_S_MAX) == 128 + signal.SIGINT
        finally:
            busy.kill()


def test_one_request_interrupts_once_though_it_comes_twice() -> None:
    request = EndRequest()
    with pytest.raises(KeyboardInterrupt):
        request.interrupt(signal.SIGTERM, None)
    request.interrupt(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        request.interrupt(signal.SIGINT, None)
