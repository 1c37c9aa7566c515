"""`courier serve` on a terminal ends its greeting with a link that signs in once."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.server import free_port

SECONDS_MAX = 30


def test_the_greeting_on_a_terminal_has_a_link_into_the_console(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    port = str(free_port())
    server = subprocess.Popen(
        [sys.executable, "-m", "courier", "serve", "--port", port, "--data", str(tmp_path / "d")],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    try:
        seen = b""
        deadline = time.monotonic() + SECONDS_MAX
        link = None
        while link is None and time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65_536)
            link = re.search(rb"http://127\.0\.0\.1:\d+/console/enter\?code=([\w-]+)\r?\n", seen)
        assert link is not None, seen
        where = link[0].decode().strip()
        while time.monotonic() < deadline:
            try:
                answer = httpx.get(where)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        assert answer.status_code == 303 and "courier_console=" in answer.headers["set-cookie"]
        assert httpx.get(where).status_code == 401
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(SECONDS_MAX)
        os.close(ours)
