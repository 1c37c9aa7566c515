"""NATS JetStream with a file store that is synced at every write, and a work queue.

One stream, one durable pull consumer that all clients share. A batch is so many publishes, or
acks, in one write; a pull asks for as many as it wants at once.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

from bench.client import NewScript, Refused, Script, Whole
from bench.process import Process, free_port
from bench.workload import BODY, Workload

STREAM, GROUP = "bench", "group"
_WAIT_NS = 5_000_000_000
_DELIVERED = re.compile(rb"MSG bench 1 (\$JS\.ACK\.\S+) \d+\r\n")
_LIMITS = (
    "jetstream {{ store_dir: {store}, sync_interval: always }}\nhost: 127.0.0.1\nport: {port}\n"
)


@cache
def program() -> str | None:
    """A server that can sync every write: what Python's index has comes into the environment."""
    for place in (Path(sys.executable).parent / "nats-server", shutil.which("nats-server")):
        if place is None or not Path(place).exists():
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
            config.write(_LIMITS.format(store='"store"', port=4222))
            config.flush()
            if (
                subprocess.run([place, "-t", "-c", config.name], capture_output=True).returncode
                == 0
            ):
                return str(place)
    return None


def _publish(subject: str, reply: bytes, body: bytes) -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply, len(body), body)


def _whole(count: int) -> Whole:
    """The answer has that many messages, beside questions whether we are there."""

    def whole(answer: bytes) -> bool:
        asked = answer.count(b"PING\r\n")
        return answer.count(b"\r\n") - asked == 2 * count and answer.endswith(b"\r\n")

    return whole


class NatsServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        config = directory / "nats.conf"
        store = json.dumps(str(directory / "store"))
        config.write_text(_LIMITS.format(store=store, port=port))
        found = program()
        assert found is not None
        self.process = Process([found, "-c", str(config)], port=port, directory=directory)
        self.process.wait_until(self.process.answers)
        self._inboxes = count()
        self._made = False

    def _open(self, inbox: bytes) -> Script:
        """Greet the server, and make stream and consumer if nobody has."""
        hello = b'CONNECT {"verbose":false}\r\nSUB %s 1\r\nPING\r\n' % inbox
        yield hello, lambda answer: answer.endswith(b"PONG\r\n")
        # Made again they are the same, and that is a success.
        stream = {
            "name": STREAM,
            "subjects": [STREAM],
            "storage": "file",
            "retention": "workqueue",
        }
        config = {"durable_name": GROUP, "ack_policy": "explicit", "max_ack_pending": -1}
        for subject, asked in (
            (f"$JS.API.STREAM.CREATE.{STREAM}", stream),
            (
                f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{GROUP}",
                {"stream_name": STREAM, "config": config},
            ),
        ):
            answer = yield _publish(subject, inbox, json.dumps(asked).encode()), _whole(1)
            if b'"error"' in answer:
                raise Refused(answer.decode())
        return 0

    def publish(self, client: int, batch: int) -> NewScript:
        inbox = b"_INBOX.%d" % client
        request = _publish(STREAM, inbox, BODY) * batch
        open_first = [True]

        def script() -> Script:
            if open_first:
                open_first.clear()
                yield from self._open(inbox)
            answer = yield request, _whole(batch)
            if answer.count(b'"seq":') != batch:
                raise Refused(answer[:300].decode())
            return batch

        return script

    def cycle(self, client: int, batch: int) -> NewScript:
        inbox = b"_INBOX.%d" % client
        publish = self.publish(client, batch)
        asked = json.dumps({"batch": batch, "expires": _WAIT_NS}).encode()
        pull = _publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{GROUP}", inbox, asked)

        def script() -> Script:
            yield from publish()
            places = _DELIVERED.findall((yield pull, _whole(batch)))
            if len(places) != batch:
                raise Refused(f"{len(places)} messages of {batch}")
            acks = b"".join([_publish(place.decode(), inbox, b"+ACK") for place in places])
            yield acks, _whole(batch)
            return batch

        return script


class Nats:
    name = "nats jetstream"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours

    def installed(self) -> bool:
        return program() is not None

    def start(self, directory: Path) -> NatsServer:
        return NatsServer(directory)
