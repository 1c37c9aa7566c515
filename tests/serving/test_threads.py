"""Long bodies of many requests are decoded by one thread, however many processors there are.

The interpreter runs one thread at a time. Each further one would be given its turn before the event
loop, which others wait for.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.attack.peer import Account
from tests.server import Server

SENDERS = 12
LONG = json.dumps({"messages": [{"body": {"a": 1}}] * 60_000 + [[]]}).encode()


def threads(server: Server) -> int:
    return len([*Path(f"/proc/{server.pid}/task").iterdir()])


def test_long_bodies_are_decoded_by_one_thread(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        with server.client() as client:
            made = client.post("/queues", json={"queue_name": "long"}).json()
        path = f"/queues/{made['result']['queue_id']}/messages/batch"
        account = Account(server)

        def refused(_: int) -> int:
            return account.ask("POST", path, LONG).status

        assert refused(0) == 400
        before = threads(server)
        with ThreadPoolExecutor(SENDERS) as senders:
            assert [*senders.map(refused, range(SENDERS))] == [400] * SENDERS
        # One that the store starts when it needs it.
        assert threads(server) - before <= 1
