"""Runs a command for as long as `courier up` is there: `python -m courier.cli.tether ...`.

Its stdin is a pipe. A byte asks the command to end. When the other end is closed, for whatever
reason, it is asked to end too, and killed if it does not. SIGTERM from others is not heeded: a
supervisor sends that to every process of a unit, and the server must outlast the pipeline.
"""

import os
import signal
import sys
import threading
import time

from courier.cli.main import main

END_S_MAX = 20.0


def watch(file: int) -> None:
    """Pass on each request to end."""
    while os.read(file, 1):
        ask_to_end()
    ask_to_end()
    time.sleep(END_S_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


def ask_to_end() -> None:
    """All threads block SIGTERM; this one hears it now. Its handler runs in the main thread."""
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


if __name__ == "__main__":
    # Nothing that the command starts has a part in the pipe.
    pipe = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Before the first thread, so that all of them inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=watch, args=(pipe,), daemon=True).start()
    sys.exit(main())
