"""Whether the space of messages that are done is used again."""

from pathlib import Path
from typing import NamedTuple

import apsw

from bench.client import move
from bench.courier import Courier, CourierServer
from bench.table import MB, Row
from bench.workload import Workload, scripts

# Twice so many messages pass through; the second half should find room where the first was.
_LOAD = Workload("space", clients=16, batch=100, cycle=True)


class Space(NamedTuple):
    """Bytes after each half: of the whole file, and of all in it except the journal."""

    messages: int
    file_bytes: tuple[int, int]
    message_bytes: tuple[int, int]

    def rows(self) -> list[Row]:
        halves = zip(("once", "twice"), self.file_bytes, self.message_bytes, strict=True)
        return [
            Row(
                f"space, {self.messages:,} cycled {half}",
                Courier.name,
                note=f"file {file / MB:.1f} MB, without the journal {rest / MB:.1f} MB",
            )
            for half, file, rest in halves
        ]


def measure(directory: Path, *, messages: int) -> Space:
    server = CourierServer(directory)
    try:
        sizes = []
        for _ in range(2):
            move(server.process, scripts(server, _LOAD), messages=messages)
            # Stopped, so that everything is in the file itself and not in its write-ahead log.
            server.process.stop()
            sizes.append(_sizes(directory))
            server.start()
    finally:
        server.process.stop()
    first, second = sizes
    return Space(
        messages=messages,
        file_bytes=(first[0], second[0]),
        message_bytes=(first[1], second[1]),
    )


def _sizes(directory: Path) -> tuple[int, int]:
    [path] = directory.glob("*.db")
    file_bytes = sum(file.stat().st_size for file in directory.glob(f"{path.name}*"))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'journal'")
        journal_bytes = rows.fetchone()
    finally:
        connection.close()
    return file_bytes, file_bytes - int(journal_bytes[0] if journal_bytes else 0)
