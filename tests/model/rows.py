"""What was sent under each key of `publish_rows`, and whether others must be told from it."""

from typing import Literal

import msgspec

from courier.core.types import Draft
from courier.ops.digests import digests

# The same drafts as before, or others in their place; None: nobody says which they are.
Sent = Literal["same", "other"] | None


class Rows:
    def __init__(self) -> None:
        self._drafts: dict[tuple[str, str], list[Draft]] = {}
        self._unmarked: set[tuple[str, str]] = set()

    def again(
        self, key: tuple[str, str], first: int, new: list[Draft], sent: Sent
    ) -> tuple[list[Draft], list[bytes] | None]:
        """What to send from number `first` on: all that is there, and something new."""
        if sent is None:
            return new, None
        there = self._drafts.get(key, [])
        before, drafts = there[:first], there[first:] + new
        if sent == "other" and there[first:]:
            drafts = [_other(drafts[0]), *drafts[1:]]
        elif sent == "other" and before:
            before = [*before[:-1], _other(before[-1])]
        return drafts, digests(drafts, digests(before, b"")[-1])

    def refused(self, key: tuple[str, str], first: int, sent: Sent) -> bool:
        """Whether such drafts must be refused."""
        there = self._drafts.get(key, [])
        return sent == "other" and first <= len(there) > 0 and key not in self._unmarked

    def stored(
        self, key: tuple[str, str], first: int, drafts: list[Draft], count: int, sent: Sent
    ) -> None:
        """There are `count` of them now."""
        there = self._drafts.get(key, [])
        if count > len(there) and sent is None:
            self._unmarked.add(key)
        if count > len(there):
            self._drafts[key] = there + drafts[len(there) - first :]

    def forget(self, key: tuple[str, str]) -> None:
        self._drafts.pop(key, None)
        self._unmarked.discard(key)


def _other(draft: Draft) -> Draft:
    return msgspec.structs.replace(draft, body=draft.body + b"!")
