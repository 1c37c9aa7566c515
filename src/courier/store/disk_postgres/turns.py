"""When this node may count on being the next to write.

Each group must come right after the one before it, which the database sees to: a group that does
not has done nothing. But then all that is in memory has to be read again, which is dear. Three ways
not to get there, the cheapest first:

1. Nobody else has written for a while: nothing is locked.
2. Others have: nodes take turns of some groups, by a lock of sessions. Who has the turn takes
   in once what the others have changed, and then writes one group after the other.
3. It is not sure that all others take turns: a group locks the head first, for as long as it lasts.

Nothing that must be true depends on a turn. A node that sleeps through its own only costs others
the time they wait for it.
"""

import asyncio
from contextlib import suppress
from typing import Any
from zlib import crc32

from asyncpg import exceptions as pg

from courier.store.disk_postgres.connection import ERRORS

# After how many groups of its own, and how long after another's, a node takes itself for the only
# one that writes; for how long it does not, once it was wrong.
ALONE_MIN = 20
ALONE_S = 1.0
OVERTAKEN_REST_S = 10.0
# How many groups a turn has while others may wait: to pass it costs about one.
TURN_GROUPS = 3
# Who has had a turn lately knows that the others take turns. Less than ALONE_S.
LATELY_S = 0.5
# Longest time to wait for a turn, and for how long nobody waits again after that.
WAIT_MS_MAX = 500
REST_S = 5.0
# A database that hangs is for the next group to find out, whose callers are told in time.
END_S_MAX = 1.0

_TAKE = "SELECT set_config('lock_timeout', $2, true), pg_advisory_lock($1)"
_END = "SELECT pg_advisory_unlock($1)"


class Turns:
    def __init__(self, schema: str) -> None:
        self._key = crc32(f"courier {schema}".encode())
        self._now = asyncio.get_running_loop().time
        self._alone = 0
        self._others_s = self._shared_until_s = 0.0
        self._mine = False
        self._groups = 0
        self._ended_s = self._rest_until_s = 0.0

    @property
    def alone(self) -> bool:
        now_s = self._now()
        return (
            self._alone >= ALONE_MIN
            and now_s >= self._shared_until_s
            and now_s - self._others_s >= ALONE_S
        )

    def saw(self, *, others: bool) -> None:
        """Before a group of this node, others had written or not."""
        self._alone = 0 if others else self._alone + 1
        if others:
            self._others_s = self._now()

    def overtaken(self) -> None:
        """Another has written although this node counted on being the next."""
        self._alone = 0
        self._shared_until_s = self._now() + OVERTAKEN_REST_S
        if self._mine:
            self._rest_until_s = self._shared_until_s

    @property
    def mine(self) -> bool:
        """This node has the turn, and has written in it."""
        return self._mine

    async def take(self, connection: Any) -> bool:
        """Wait for the turn. False: the head has to be locked."""
        lately = self._now() - self._ended_s < LATELY_S
        if self._mine or self._now() < self._rest_until_s:
            return False
        try:
            await connection.fetchrow(_TAKE, self._key, str(WAIT_MS_MAX))
        except pg.LockNotAvailableError:
            self._rest_until_s = self._now() + REST_S
            return False
        self._mine = True
        self._groups = 0
        return lately

    def is_over(self, *, idle: bool) -> bool:
        """After a group."""
        self._groups += 1
        return idle or self._groups >= TURN_GROUPS

    async def end(self, connection: Any) -> None:
        self.lost()
        self._ended_s = self._now()
        with suppress(*ERRORS):
            await connection.execute(_END, self._key, timeout=END_S_MAX)

    def lost(self) -> None:
        """The connection is, and the turn with it."""
        self._mine = False
