"""What a queue holds."""

from collections.abc import Sequence

from courier.core.errors import StoreDamaged
from courier.core.types import QueueStats
from courier.store.engine.book import Book
from courier.store.engine.calls import GroupRunner, Verbs
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import QueueLine


class Stats(Verbs):
    def __init__(self, calls: GroupRunner, book: Book, deliveries: Deliveries) -> None:
        super().__init__(calls)
        self._book = book
        self._deliveries = deliveries

    async def of_queues(self, queues: Sequence[str], *, now_ms: int) -> dict[str, QueueStats]:
        async def part(ids: Sequence[str]) -> dict[str, QueueStats]:
            lines = self._book.lines
            return {id: await self.of(line) for id in ids if (line := lines.get(id))}

        return await self.calls.in_parts(queues, now_ms, part)

    async def of(self, line: QueueLine) -> QueueStats:
        if line.count and not line.oldest_known:
            line.oldest_ms = await self._oldest(line)
            line.oldest_known = True
        return line.stats()

    async def _oldest(self, line: QueueLine) -> int:
        """When the oldest message was published, of those in ranges, with rows and fresh ones."""
        found: list[int] = []
        if line.ranges:
            found.append((await self._deliveries.block_of(line, line.ranges[0])).at_ms)
        if line.count > line.fresh + line.ranged:
            rows = await self._deliveries.rows(line, Between(1, SEQ_MASK), 1)
            found += [row.published_ms for row in rows]
        if line.fresh and not line.ranges:
            fresh = await self._deliveries.fresh(line, 1)
            found += [span.block.at_ms for span in fresh.spans]
        if not found:
            raise StoreDamaged("line", line.no)
        return min(found)
