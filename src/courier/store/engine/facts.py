"""What is known under a key: publish keys, numbered rows, claims, names, rates."""

from collections.abc import Sequence
from typing import Literal

from courier.store.engine.book import Book
from courier.store.engine.disk import Below, Fact
from courier.store.engine.lines import QueueLine

Kind = Literal["once", "rows", "claim", "name", "rate"]


class KnownFacts:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def known(self, line: QueueLine, kind: Kind, keys: Sequence[str]) -> dict[str, Fact]:
        changed = self._book.changes.facts
        found: dict[str, Fact] = {}
        unknown: list[str] = []
        for key in keys:
            full = (line.no, kind, key)
            if full not in changed:
                unknown.append(key)
            elif (fact := changed[full]) is not None:
                found[key] = fact
        if unknown:
            found |= await self._book.disk.known(line.no, kind, unknown)
        return found

    async def one(self, line: QueueLine, kind: Kind, key: str, now_ms: int) -> Fact | None:
        """What is known under this key, if it still is."""
        fact = (await self.known(line, kind, [key])).get(key)
        return fact if fact is not None and now_ms < fact.until_ms else None

    async def below(self, line: QueueLine, kind: Kind, prefix: str, now_ms: int) -> list[Fact]:
        """Under all keys that begin with the prefix and a slash."""
        await self._book.spill()
        facts = await self._book.disk.known(line.no, kind, Below(prefix))
        return [fact for fact in facts.values() if now_ms < fact.until_ms]

    def put(self, line: QueueLine, kind: Kind, key: str, fact: Fact | None) -> None:
        self._book.changes.facts[line.no, kind, key] = fact
        self._book.changed = True
