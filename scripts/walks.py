"""Which files a request runs through: those whose functions are called for it.

    python scripts/walks.py

A server in this process is asked over a real connection, several times, because the first time
some things are looked up that are remembered after. Of the later ones what they have in common
counts. A loop that runs during the first adds its files to it.
"""

import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from courier import app
from courier.config import Config

SOURCE = str(Path(app.__file__).parent) + "/"
NEVER_MS = 86_400_000
WAIT_S = 30.0
TIMES = 6


class Walk:
    """Files of functions that were called, with these functions, in the order of first calls."""

    current: "Walk | None" = None

    def __init__(self) -> None:
        self.files: dict[str, dict[str, None]] = {}

    @classmethod
    def note(cls, frame: FrameType, event: str, _: Any) -> None:
        name, walk = frame.f_code.co_filename, cls.current
        if walk is not None and event == "call" and name.startswith(SOURCE):
            walk.files.setdefault(name.removeprefix(SOURCE), {})[frame.f_code.co_qualname] = None

    def common(self, others: Sequence["Walk"]) -> "Walk":
        """What is in all of them: no loop that happened to run meanwhile."""
        found = Walk()
        for file, names in self.files.items():
            if all(file in other.files for other in others):
                found.files[file] = names
        return found

    def shown(self) -> str:
        return "\n".join(f"  {file:36} {', '.join(names)}" for file, names in self.files.items())


class Asking(threading.Thread):
    """Asks the server that the main thread is."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self.data = data
        self.walks: list[tuple[str, Walk]] = []

    def run(self) -> None:
        try:
            self._ask()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _ask(self) -> None:
        known = self._credentials()["cloudflare"]
        host = known["base_url"].split("/")[2]
        queues = f"/client/v4/accounts/{known['account_id']}/queues"
        connection = http.client.HTTPConnection(host)

        def ask(path: str, body: dict[str, Any]) -> Any:
            head = {
                "authorization": f"Bearer {known['api_token']}",
                "content-type": "application/json",
            }
            connection.request("POST", path, json.dumps(body), head)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return json.loads(text)["result"]

        queue = f"{queues}/{ask(queues, {'queue_name': 'walked'})['queue_id']}"
        ask(f"{queue}/consumers", {"type": "http_pull"})
        for path, body in (("messages", {"body": "a"}), ("messages/pull", {"batch_size": 1})):
            first, *others = [self._walk(ask, f"{queue}/{path}", body) for _ in range(TIMES)]
            self.walks += [(f"first {path}", first), (f"later {path}", others[0].common(others))]

    def _walk(self, ask: Callable[[str, dict[str, Any]], Any], path: str, body: Any) -> Walk:
        time.sleep(0.2)
        Walk.current = walk = Walk()
        ask(path, body)
        Walk.current = None
        return walk

    def _credentials(self) -> Any:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            try:
                return json.loads((self.data / "credentials.json").read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.1)
        raise TimeoutError("the server has written no credentials")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        asking = Asking(data)
        asking.start()
        for each in (threading, sys):
            each.setprofile(Walk.note)
        app.serve(Config(data=data, port=0, console=False, sweep_every_ms=NEVER_MS))
        asking.join()
    for what, walk in asking.walks:
        print(f"{what}: {len(walk.files)} files\n{walk.shown()}")


if __name__ == "__main__":
    main()
