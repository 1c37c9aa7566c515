"""Blocks: the messages that one group published on one queue, bodies and all, in one row.

A block is written once. Only when the journal is past it and few of its messages are left are the
bodies of the others taken out. Every block has checksums of what it is made of, and a block that
does not match them raises StoreDamaged instead of giving a wrong body.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from courier.core.errors import StoreDamaged
from courier.store.engine.layout import SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from courier.store.engine.disk import Disk
    from courier.store.engine.lines import QueueLine

_BODY_OVERHEAD_BYTES = 100
_LOOK_MAX = 10_000
COPIED_BYTES_MAX = 1 << 20
# No further block is read ahead once those that were are so long.
_AHEAD_BYTES_MAX = 1 << 20

_encode = msgspec.msgpack.Encoder().encode


class Rare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What most messages do not have. `noted_ms` is the delay that the journal tells of."""

    own_id: str | None = None
    headers: bytes | None = None
    group: str | None = None
    expires_ms: int | None = None
    delay_ms: int | None = None
    sealed: str | None = None
    origin: dict[str, Any] | None = None
    noted_ms: int | None = None


NOT_RARE = Rare()
_decode_meta = msgspec.msgpack.Decoder(
    tuple[int | list[int], str | list[str], dict[int, Rare]]
).decode
_HEAD = Struct("<6q")
_decode_bodies = msgspec.msgpack.Decoder(list[bytes | None]).decode


class BlockRow(NamedTuple):
    """A block as it is stored. `data` None: it was not asked for."""

    key: int
    at_ms: int
    flags: int
    only: int
    length: int
    last: int
    meta_sum: int
    data_sum: int
    meta: bytes
    data: bytes | None


class Block:
    """`sizes` and `types` are lists, or one value that holds for all. `rare` is by place.

    `only`: number of the listener's line that alone gets these messages, 0 for all. `last`: the
    offset of the packet in the journal that tells of them. `bodies` may be None: not in memory.
    `expires_ms`, the first expiry of its messages, is known while the block is being filled.
    """

    __slots__ = (
        "_named",
        "at_ms",
        "bodies",
        "count",
        "expires_ms",
        "first",
        "flags",
        "key",
        "last",
        "nbytes",
        "only",
        "rare",
        "sizes",
        "types",
    )

    def __init__(self, key: int, at_ms: int, flags: int, only: int) -> None:
        self.key = key
        self.first = key & SEQ_MASK
        self.at_ms = at_ms
        self.flags = flags
        self.only = only
        self.count = self.nbytes = self.last = 0
        self.expires_ms: int | None = None
        self.sizes: int | list[int] = []
        self.types: str | list[str] = []
        self.rare: dict[int, Rare] = {}
        self.bodies: list[bytes | None] | None = []
        self._named: tuple[list[str | None], bool] | None = None

    @property
    def end(self) -> int:
        """The sequence after its last."""
        return self.first + self.count

    def size(self, place: int) -> int:
        return self.sizes[place] if isinstance(self.sizes, list) else self.sizes

    def sizes_of(self, place: int, count: int) -> list[int]:
        if isinstance(self.sizes, list):
            return self.sizes[place : place + count]
        return [self.sizes] * count

    def type(self, place: int) -> Any:
        types = self.types
        return types if isinstance(types, str) else types[place]

    def types_of(self, place: int, count: int) -> list[Any]:
        if isinstance(self.types, list):
            return self.types[place : place + count]
        return [self.types] * count

    @property
    def own_ids(self) -> list[str | None]:
        """Of each message, while any has one."""
        return self._names()[0]

    @property
    def only_named(self) -> bool:
        """Whether nothing rare is said of its messages but their own ids."""
        return self._names()[1]

    def _names(self) -> tuple[list[str | None], bool]:
        known = self._named
        if known is None or len(known[0]) != self.count:
            rare = [self.rare.get(place, NOT_RARE) for place in range(self.count)]
            known = self._named = (
                [each.own_id for each in rare],
                all([each == Rare(each.own_id) for each in rare]),
            )
        return known

    def row(self) -> BlockRow:
        assert self.bodies is not None, "a block that is written has its bodies"
        self.sizes = _one(self.sizes)
        self.types = _one(self.types)
        meta = _encode((self.sizes, self.types, self.rare))
        data = _encode(self.bodies)
        head = (self.key, self.at_ms, self.flags, self.only, self.count, self.last)
        return BlockRow(*head, _head_sum(*head, meta), checksum(self.key, data), meta, data)

    def row_bytes(self) -> int:
        """How long `meta` and `data` of its row are, without making the row."""
        assert self.bodies is not None, "a block that is written has its bodies"
        self.sizes, self.types = _one(self.sizes), _one(self.types)
        meta = len(_encode((self.sizes, self.types, self.rare)))
        lengths = [len(body or b"") for body in self.bodies]
        heads = len(_encode([b""] * len(lengths))) - 2 * len(lengths)
        for length, body in zip(lengths, self.bodies, strict=True):
            heads += 1 if body is None else 2 if length < 1 << 8 else 3 if length < 1 << 16 else 5
        return meta + heads + sum(lengths)

    def only_bodies_at(self, places: Sequence[int]) -> None:
        """Keep the bodies at these places, and what else those messages have, and no others."""
        assert self.bodies is not None, "the bodies were read before"
        bodies = self.bodies
        self.bodies = [None] * self.count
        for place in places:
            self.bodies[place] = bodies[place]
        self.rare = {place: self.rare[place] for place in places if place in self.rare}
        self._named = None


def _one(values: Any) -> Any:
    """A list whose values are all the same, as that one value."""
    if type(values) is list and values.count(values[0]) == len(values):
        return values[0]
    return values


def checksum(key: int, data: bytes) -> int:
    """Of data that belongs to this key: the same data elsewhere has another."""
    return crc32(data, key & 0xFFFFFFFF)


def _head_sum(
    key: int, at_ms: int, flags: int, only: int, count: int, last: int, meta: bytes
) -> int:
    return crc32(meta, crc32(_HEAD.pack(key, at_ms, flags, only, count, last)))


def block_of(row: BlockRow) -> Block:
    """Raises StoreDamaged when the row is not what was written."""
    # Blocks of 0.1.0 have a checksum of `meta` alone.
    if row.meta_sum != _head_sum(*row[:6], row.meta) and row.meta_sum != checksum(
        row.key, row.meta
    ):
        raise StoreDamaged("block", row.key)
    if row.data is not None and checksum(row.key, row.data) != row.data_sum:
        raise StoreDamaged("block", row.key)
    block = Block(row.key, row.at_ms, row.flags, row.only)
    block.count, block.last = row.length, row.last
    block.sizes, block.types, block.rare = _decode_meta(row.meta)
    block.bodies = None
    if row.data is not None:
        block.bodies = _decode_bodies(row.data)
        block.nbytes = len(row.data) + _BODY_OVERHEAD_BYTES * row.length
    return block


class Blocks:
    """Finds blocks: among those of the group, in memory, on disk. Forgets the least used first.

    What this group has published is in memory until it is committed, whatever the limit.
    """

    def __init__(self, disk: "Disk", *, bytes_max: int) -> None:
        self._disk = disk
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cache: OrderedDict[int, Block] = OrderedDict()
        # The same by line: sorted keys.
        self._keys: dict[int, list[int]] = {}
        self.new: list[Block] = []
        self._copied = 0

    @property
    def copied_much(self) -> bool:
        """This group has copied as many bodies from queue to queue as one should: each is read and
        written, and nobody is served meanwhile."""
        return self._copied >= COPIED_BYTES_MAX

    def copied(self, size: int) -> None:
        self._copied += size

    def reset(self) -> None:
        self._cache.clear()
        self._keys.clear()
        self._bytes = self._copied = 0
        self.new = []

    @property
    def new_bytes(self) -> int:
        """What this group publishes."""
        return sum([block.nbytes for block in self.new])

    def add(self, block: Block) -> None:
        """A block that this group publishes."""
        self.new.append(block)
        self._insert(block)

    def committed(self) -> None:
        for block in self.new:
            block.nbytes += _BODY_OVERHEAD_BYTES * block.count
            self._bytes += block.nbytes
        self.new = []
        self._copied = 0

    def shrink(self) -> None:
        """Between two groups: within one, what was found must stay whole."""
        while self._bytes > self._bytes_max and self._cache:
            block = self._cache[next(iter(self._cache))]
            self.forget(block.key)
            block.bodies = None

    def keep(self, block: Block) -> None:
        self.forget(block.key)
        self._insert(block)
        self._bytes += block.nbytes

    def _insert(self, block: Block) -> None:
        self._cache[block.key] = block
        insort(self._keys.setdefault(block.key >> SEQ_BITS, []), block.key)

    def forget(self, key: int) -> None:
        block = self._cache.pop(key, None)
        if block is None:
            return
        self._bytes -= block.nbytes
        keys = self._keys[key >> SEQ_BITS]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._keys[key >> SEQ_BITS]

    async def at(self, line: "QueueLine", seq: int, *, bodies: bool = False) -> Block:
        """The block that holds a message which is there. Raises StoreDamaged without it."""
        found = await self.seek(line, seq, bodies=bodies)
        if found is None or found.first > seq:
            raise StoreDamaged("block of message", line.base | seq)
        return found

    async def seek(
        self, line: "QueueLine", seq: int, *, bodies: bool = False, ahead: int = 1
    ) -> Block | None:
        """The block that holds the sequence, else the next one; blocks that went leave holes.

        `ahead`: how many messages from there on will be asked for next.
        """
        near = line.near
        if near is not None and near.first <= seq < near.end and (near.bodies or not bodies):
            return near
        found = self._in_memory(line, seq)
        if found is None or (bodies and found.bodies is None):
            # Blocks without bodies are not kept, so none is read ahead.
            messages = ahead if bodies else 1
            rows = await self._disk.blocks(
                line.no, seq, messages=messages, bodies=bodies, bytes_max=_AHEAD_BYTES_MAX
            )
            read = [block_of(row) for row in rows]
            for block in read if bodies else ():
                self.keep(block)
            if read:
                found = read[0]
            else:
                later = [new for new in self.new if new.key > line.base | seq]
                later = [new for new in later if new.key >> SEQ_BITS == line.no]
                found = later[0] if later else None
        line.near = found
        return found

    async def are_left(self, line: int, *, but: Collection[int] = ()) -> bool:
        """Whether a line has blocks besides these."""
        gone = set(but)
        if any(block.key >> SEQ_BITS == line for block in self.new):
            return True
        seq = 0
        while rows := await self._disk.blocks(
            line, seq, messages=_LOOK_MAX, bodies=False, bytes_max=0
        ):
            if any(row.key not in gone for row in rows):
                return True
            seq = (rows[-1].key & SEQ_MASK) + rows[-1].length
        return False

    def _in_memory(self, line: "QueueLine", seq: int) -> Block | None:
        keys = self._keys.get(line.no)
        if keys is None:
            return None
        key = line.base | seq
        at = bisect_right(keys, key) - 1
        if at < 0:
            return None
        block = self._cache[keys[at]]
        if key >= block.key + block.count:
            return None
        self._cache.move_to_end(block.key)
        return block
