"""Forgetting the journal's oldest packets, and the blocks that nothing needs any more.

The one place where a body goes. A block goes when the journal is past it and no line has to do with
any of its messages; when few of them are left, the bodies of the others go.
"""

from courier.store.engine.blocks import Block
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Loose
from courier.store.engine.layout import SEQ_BITS, SEQ_MASK
from courier.store.engine.lines import QueueLine
from courier.store.engine.messages import name_key

# Packets forgotten and blocks looked at by one call.
PACKETS_MAX = 1_000
BLOCKS_MAX = 1_000
# A block loses the bodies of its dead when fewer than one in this many of its messages are alive.
SPARSE = 4


class Trim:
    def __init__(self, book: Book, deliveries: Deliveries) -> None:
        self._book = book
        self._deliveries = deliveries
        # Where in the journal's past the last look at loose blocks ended.
        self._looked = 0

    async def trim(self, upto: int, before_ms: int | None) -> int:
        """Forget packets, never the newest one: it says where the journal ends."""
        book = self._book
        trimmed = await book.disk.trim(upto, before_ms=before_ms, limit=PACKETS_MAX)
        forgotten = 0
        if trimmed is not None:
            forgotten = trimmed[0] - book.journal_first
            book.journal_first, book.journal_start_bytes = trimmed
            book.changed = True
        await self._free()
        return forgotten

    async def _free(self) -> None:
        """Look at some of the blocks that the journal is past, in turn."""
        book = self._book
        await book.spill()
        past = book.journal_first - 1
        found = await book.disk.loose(self._looked, past, limit=BLOCKS_MAX)
        emptied: set[int] = set()
        for loose in found:
            line = book.by_no[loose.key >> SEQ_BITS]
            assert isinstance(line, QueueLine)
            alive = await self._alive(line, loose)
            if not alive:
                await self._free_block(line, loose)
                emptied.add(line.no)
            elif SPARSE * len(alive) < loose.length:
                await self._thin(line, loose, alive)
        self._looked = found[-1].last if len(found) == BLOCKS_MAX else 0
        for no in emptied & book.spent.keys():
            if not await book.blocks.are_left(no, but=book.changes.freed):
                book.forget_line(book.spent[no])

    async def _alive(self, line: QueueLine, loose: Loose) -> list[int]:
        """Sequences of the block's messages that some line has to do with."""
        first = loose.key & SEQ_MASK
        last = first + loose.length - 1
        if line.spent:
            return []
        alive: set[int] = set()
        for each in line.all_lines:
            standing = await self._deliveries.standing(
                each, after=first - 1, upto=last, limit=loose.length
            )
            alive |= {delivery.seq for delivery in standing}
            if len(alive) == loose.length:
                break
        return sorted(alive)

    async def _free_block(self, line: QueueLine, loose: Loose) -> None:
        changes = self._book.changes
        first = loose.key & SEQ_MASK
        end = first + loose.length
        changes.freed.append(loose.key)
        changes.expiries.pop(loose.key, None)
        if line.near is not None and line.near.key == loose.key:
            line.near = None
        self._book.blocks.forget(loose.key)
        self._book.changed = True
        if line.renamed:
            changes.forgotten.append((line.no, "name", name_key(first), name_key(end)))
        for each in line.all_lines:
            await self._deliveries.forget_gone(each, first, end)
        for pushes in line.pushes:
            changes.settled.append((pushes.base | first, pushes.base | end - 1))

    async def _thin(self, line: QueueLine, loose: Loose, alive: list[int]) -> None:
        """Take out the bodies of the dead, if there are any left."""
        block: Block = await self._book.blocks.at(line, loose.key & SEQ_MASK, bodies=True)
        places = {seq - block.first for seq in alive}
        assert block.bodies is not None
        if all(body is None or at in places for at, body in enumerate(block.bodies)):
            return
        block.only_bodies_at(sorted(places))
        self._book.changes.blocks.append(block.row())
        self._book.blocks.forget(block.key)
        line.near = None
        self._book.changed = True
