"""What a queue holds."""

from courier.core.errors import StoreDamaged
from courier.core.types import QueueStats
from courier.store.engine.book import Book
from courier.store.engine.deliveries import Deliveries
from courier.store.engine.disk import Between
from courier.store.engine.layout import SEQ_MASK
from courier.store.engine.lines import QueueLine


class Stats:
    def __init__(self, book: Book, deliveries: Deliveries) -> None:
        self._book = book
        self._deliveries = deliveries

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
