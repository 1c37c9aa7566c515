"""PostgreSQL with statements of pgmq's shape, by prepared statements over its own protocol.

What the statements are, and why not pgmq itself: see `bench/postgres.py`.
"""

import re
import struct
from pathlib import Path

from tests.postgres import Database, program

from bench.client import NewScript, Refused, Script
from bench.postgres import CREATE, DELETE, READ, SEND
from bench.process import Process, cpu_s_of
from bench.workload import BODY, Workload

_READY = b"Z\0\0\0\5I"
_ID = re.compile(rb"D....\0[\1\5](....)", re.DOTALL)


def _message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack(">I", len(payload) + 4) + payload


_SYNC = _message(b"S", b"")


def _whole(answer: bytes) -> bool:
    return answer.endswith(_READY) or answer.startswith(b"E")


def _run(name: bytes, value: bytes) -> bytes:
    """Run a prepared statement with one value, as text."""
    given = struct.pack(">HHI", 0, 1, len(value)) + value + b"\0\0"
    return _message(b"B", b"\0" + name + b"\0" + given) + _message(b"E", b"\0\0\0\0\0") + _SYNC


def _check(answer: bytes) -> bytes:
    if not answer.endswith(_READY):
        raise Refused(answer[:300].decode(errors="replace"))
    return answer


def _ids(answer: bytes) -> list[bytes]:
    """The first column of all rows."""
    found, at = [], 0
    while at < len(answer):
        (size,) = struct.unpack_from(">I", answer, at + 1)
        if answer[at] == ord("D"):
            (length,) = struct.unpack_from(">I", answer, at + 7)
            found.append(answer[at + 11 : at + 11 + length])
        at += 1 + size
    return found


class _Postmaster(Process):
    """A server that PostgreSQL's own programs start and stop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.port = database.port

    def stop(self) -> None:
        self._database.remove()

    def cpu_s(self) -> float:
        return cpu_s_of(int((self._database.data / "postmaster.pid").read_text().split()[0]))


class PgmqServer:
    def __init__(self) -> None:
        database = Database("max_wal_size=4GB")
        database.sql(CREATE)
        self.process = _Postmaster(database)

    def _open(self) -> Script:
        who = b"user\0courier\0database\0postgres\0\0"
        yield struct.pack(">II", len(who) + 8, 3 << 16) + who, _whole
        parts = [
            _message(b"P", name + b"\0" + text.encode() + b"\0\0\0")
            for name, text in ((b"send", SEND), (b"read", READ), (b"delete", DELETE))
        ]
        _check((yield b"".join(parts) + _SYNC, _whole))
        return 0

    def publish(self, client: int, batch: int) -> NewScript:
        body = b'"\\"%s\\""' % BODY
        send = _run(b"send", b"{%s}" % b",".join([body] * batch))
        open_first = [True]

        def script() -> Script:
            if open_first:
                open_first.clear()
                yield from self._open()
            if len(_ids(_check((yield send, _whole)))) != batch:
                raise Refused("not all messages were sent")
            return batch

        return script

    def cycle(self, client: int, batch: int) -> NewScript:
        publish, read = self.publish(client, batch), _run(b"read", b"%d" % batch)

        def script() -> Script:
            yield from publish()
            ids = _ids(_check((yield read, _whole)))
            _check((yield _run(b"delete", b"{%s}" % b",".join(ids)), _whole))
            return len(ids)

        return script


class Pgmq:
    name = "postgresql, pgmq's statements"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours

    def installed(self) -> bool:
        try:
            program("postgres")
        except AssertionError:
            return False
        return True

    def start(self, directory: Path) -> PgmqServer:
        return PgmqServer()
