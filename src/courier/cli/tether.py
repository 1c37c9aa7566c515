"""Runs a command for as long as whoever started it is there: `python -m courier.cli.tether ...`.

Its stdin is a pipe that nobody writes to. When the other end is gone, however that came, the
command is told to end, and made to if it does not.
"""

import os
import signal
import sys
import threading
import time

from courier.cli.main import main

END_S_MAX = 20.0


def watch(file: int) -> None:
    """Wait for the end of a pipe, then end this process."""
    while os.read(file, 1_024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S_MAX)
    os.killpg(0, signal.SIGKILL)


def end_others() -> None:
    """End what is left of this process's group, which is its own: a Java that was just starting."""
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    # Nothing that the command starts has a part in the pipe.
    pipe = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=watch, args=(pipe,), daemon=True).start()
    try:
        sys.exit(main())
    finally:
        end_others()
