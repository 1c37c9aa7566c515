"""A terminal for commands: a real one, of any width, with somebody who types."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl

from tests.cli.command import clean_environ, sigint_heard

SECONDS_MAX = 60.0
# Typed: Ctrl-C.
INTERRUPT = "\x03"


def on_terminal(
    *args: str,
    typed: Sequence[tuple[str, str]] = (),
    columns: int = 80,
    environ: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Run the command; its exit status and all that the terminal shows.

    `typed`: after each text has been shown, what is typed then.
    """
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**clean_environ(), "TERM": "xterm-256color", **(environ or {})}
    env.pop("COLUMNS", None)
    command = [sys.executable, "-m", "courier", *args]
    with sigint_heard():
        process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env)
    os.close(its)
    shown, waiting = b"", list(typed)
    until_s = time.monotonic() + SECONDS_MAX
    try:
        while True:
            assert time.monotonic() < until_s, shown
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(ours, 65_536)
            except OSError:  # the command has ended
                break
            if not part:
                break
            shown += part
            if waiting and waiting[0][0].encode() in shown:
                text = waiting.pop(0)[1]
                if text == INTERRUPT:
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(ours, text.encode() + b"\n")
        return process.wait(SECONDS_MAX), shown.decode().replace("\r\n", "\n")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
