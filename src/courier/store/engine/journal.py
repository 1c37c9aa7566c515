"""Packets of the journal: the events of one group, packed and unfolded.

A `published` run does not carry its messages. It says in which block they lie and from which place
on, and they are put together when the journal is read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from courier.core.errors import StoreDamaged
from courier.core.types import Run
from courier.store.engine.blocks import NOT_RARE, Block, BlockRow, block_of, checksum
from courier.store.engine.disk import Packet
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import Delivery

# count, kind, at_ms, tenant, queue, queue_name, actor, dialect, columns
PackedRun = list[Any]
encode_runs = msgspec.msgpack.Encoder().encode
_decode_runs = msgspec.msgpack.Decoder(
    list[tuple[int, str, int, str, str, str, str, str, dict[str, Any]]]
).decode
_decode_json = msgspec.json.Decoder().decode


def packed(values: Sequence[Any]) -> Any:
    """A column: one value when all are the same, else the list."""
    first, count = values[0], len(values)
    return first if count == 1 or values.count(first) == count else list(values)


def packed_seqs(seqs: Sequence[int]) -> Any:
    """Neighbours as a list of the first one alone, others as they are."""
    first, count = seqs[0], len(seqs)
    if count == 1:
        return first
    if seqs[-1] - first == count - 1 and (
        isinstance(seqs, range) or list(seqs) == list(range(first, first + count))
    ):
        return [first]
    return list(seqs)


def packet_bytes(packet: Packet, rows: Sequence[BlockRow]) -> int:
    """With the blocks that it names."""
    return len(packet.data) + sum([len(row.data or b"") for row in rows])


def unfolded(page: Sequence[tuple[Packet, Sequence[BlockRow]]]) -> list[Run]:
    """The runs of packets. Raises StoreDamaged when one is not what was written."""
    runs: list[Run] = []
    for packet, rows in page:
        blocks = {row.key: block_of(row) for row in rows}
        runs += _runs(packet, blocks)
    return runs


def headers_of(packet: Packet) -> list[tuple[int, int]]:
    """Offset and time of each run of a packet."""
    offset = packet.last - packet.length + 1
    found = []
    for run in _decode_runs(checked(packet)):
        found.append((offset, run[2]))
        offset += run[0]
    return found


def checked(packet: Packet) -> bytes:
    if checksum(packet.last, packet.data) != packet.checksum:
        raise StoreDamaged("journal packet", packet.last)
    return packet.data


def _runs(packet: Packet, blocks: dict[int, Block]) -> Iterator[Run]:
    offset = packet.last - packet.length + 1
    for count, kind, at_ms, tenant, queue, name, actor, dialect, columns in _decode_runs(
        checked(packet)
    ):
        if "block" in columns:
            block = blocks.get(columns["block"])
            if block is None or block.bodies is None:
                raise StoreDamaged("block", columns["block"])
            told = _published(block, columns["at"], count, columns.get("detail"))
        else:
            told = columns
            seq = columns.get("seq")
            if isinstance(seq, list) and len(seq) < count:
                columns["seq"] = list(range(seq[0], seq[0] + count))
        yield Run(offset, count, kind, at_ms, tenant, queue, name, actor, dialect, told)
        offset += count
    if offset != packet.last + 1:
        raise StoreDamaged("journal packet", packet.last)


def _published(block: Block, at: int, count: int, detail: Any) -> dict[str, Any]:
    """The columns of messages `at` .. `at + count - 1` of a block."""
    assert block.bodies is not None
    first = block.first + at
    columns: dict[str, Any] = {
        "seq": list(range(first, first + count)),
        "published_ms": block.at_ms,
        "size": _packed_part(block.sizes, at, count),
        "content_type": _packed_part(block.types, at, count),
        "body": block.bodies[at : at + count],
    }
    if block.rare:
        rare = [block.rare.get(place, NOT_RARE) for place in range(at, at + count)]
        lists: dict[str, list[Any]] = {
            "own_id": [each.own_id for each in rare],
            "headers": [_decode_json(each.headers) if each.headers else None for each in rare],
            "group": [each.group for each in rare],
            "sealed": [each.sealed for each in rare],
            "delay_ms": [each.noted_ms for each in rare],
            "detail": [each.origin for each in rare],
        }
        columns |= {name: values for name, values in lists.items() if any_of(values)}
    if detail is not None:
        columns["detail"] = detail
    return columns


def _packed_part(values: Any, at: int, count: int) -> Any:
    return packed(values[at : at + count]) if isinstance(values, list) else values


def any_of(values: Sequence[Any]) -> bool:
    """Whether one of them is not None."""
    return values.count(None) != len(values)


class EventColumns:
    """What events say of several messages, be they of rows, of ranges or of a block. `lives`: also
    when each was leased first and last, for events that end a message."""

    __slots__ = ("attempts", "first_ms", "last_ms", "lives", "own", "seqs", "sizes", "times")

    def __init__(self, rows: Sequence[Delivery] = (), *, lives: bool = False) -> None:
        self.lives = lives
        self.seqs = [row.key & SEQ_MASK for row in rows]
        self.times = [row.published_ms for row in rows]
        self.sizes = [row.size for row in rows]
        self.attempts = [row.attempt for row in rows]
        self.own = [row.own_id for row in rows]
        self.first_ms = [row.first_ms for row in rows] if lives else []
        self.last_ms = [row.last_ms for row in rows] if lives else []

    def add(
        self, block: Block, seqs: Sequence[int], *, attempt: int, leased_ms: int | None = None
    ) -> None:
        """Messages of a block that have no rows."""
        count, first, sizes = len(seqs), block.first, block.sizes
        self.seqs += seqs
        self.times += [block.at_ms] * count
        if type(sizes) is list:
            self.sizes += [sizes[seq - first] for seq in seqs]
        else:
            self.sizes += block.sizes_of(0, count)
        self.attempts += [attempt] * count
        if block.rare:
            own = block.own_ids
            self.own += [own[seq - first] for seq in seqs]
        else:
            self.own += [None] * count
        if self.lives:
            self.first_ms += [leased_ms] * count
            self.last_ms += [leased_ms] * count

    def sort(self) -> None:
        """By sequence."""
        order = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
        for name in self.__slots__:
            values = getattr(self, name)
            if isinstance(values, list) and values:
                setattr(self, name, [values[place] for place in order])

    def packed(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "seq": packed_seqs(self.seqs),
            "published_ms": packed(self.times),
            "size": packed(self.sizes),
            "attempt": packed(self.attempts),
        }
        if any_of(self.own):
            columns["own_id"] = self.own
        if self.lives:
            columns["first_leased_ms"] = packed(self.first_ms)
            columns["last_leased_ms"] = packed(self.last_ms)
        return columns
