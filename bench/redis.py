"""Redis Streams with every write synced before it is answered, as durable as Courier.

One stream, one consumer group, each client a consumer of its own. One round trip for each
step: a batch is so many XADDs in one write; XACK and XDEL travel together.
"""

import re
import shutil
import socket
from pathlib import Path

from bench.client import NewScript, Refused, Script, lines
from bench.process import Process, free_port
from bench.workload import BODY, Workload

STREAM = b"stream"
GROUP = b"group"
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")
_HEAD_LINES = 5
_ENTRY_LINES = 8
_ENTRY_ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")
_TWO_LINES = lines(2)


def command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def _entries_whole(answer: bytes) -> bool:
    if answer == b"*-1\r\n" or answer.startswith(b"-"):
        return answer.endswith(b"\r\n")
    head = _HEAD.match(answer)
    if head is None:
        return False
    return lines(_HEAD_LINES + _ENTRY_LINES * int(head[1]))(answer)


class RedisServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.process = Process(
            [
                *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
                *("--dir", str(directory), "--appendonly", "yes", "--appendfsync", "always"),
                *("--save", ""),
            ],
            port=port,
            directory=directory,
        )
        self.process.wait_until(self.process.answers)
        self._ask(command(b"XGROUP", b"CREATE", STREAM, GROUP, b"$", b"MKSTREAM"))

    def _ask(self, request: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.process.port)) as sock:
            sock.sendall(request)
            answer = sock.recv(1000)
            if not answer.startswith(b"+OK"):
                raise Refused(answer.decode())

    def publish(self, client: int, batch: int) -> NewScript:
        request = command(b"XADD", STREAM, b"*", b"b", BODY) * batch
        whole = lines(2 * batch)

        def script() -> Script:
            answer = yield request, whole
            if answer[0] != 36:  # "$": the id of the new entry
                raise Refused(answer[:200].decode())
            return batch

        return script

    def cycle(self, client: int, batch: int) -> NewScript:
        publish = self.publish(client, batch)
        consumer = b"consumer-%d" % client
        read = command(
            *(b"XREADGROUP", b"GROUP", GROUP, consumer),
            *(b"COUNT", b"%d" % batch, b"STREAMS", STREAM, b">"),
        )

        def script() -> Script:
            yield from publish()
            entries = _ENTRY_ID.findall((yield read, _entries_whole))
            if not entries:
                raise Refused("nothing to read")
            settle = command(b"XACK", STREAM, GROUP, *entries) + command(b"XDEL", STREAM, *entries)
            answer = yield settle, _TWO_LINES
            if answer != b":%d\r\n:%d\r\n" % (len(entries), len(entries)):
                raise Refused(answer.decode())
            return len(entries)

        return script


class Redis:
    name = "redis streams"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours

    def installed(self) -> bool:
        return shutil.which("redis-server") is not None

    def start(self, directory: Path) -> RedisServer:
        return RedisServer(directory)
