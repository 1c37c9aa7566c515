"""Nodes tell each other what they have written and what they have seen.

Notices are only hints: at most one in `EVERY_S` and node, on a connection of their own and not in
the transaction of a group, where they would make all groups of all nodes wait for each other. A
notice that is lost is made up for by the next look.

Every node keeps a row that says up to which group it has seen the settings. A change of settings is
answered when every living node has seen it, or after `SPREAD_S_MAX`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from courier.clock import elapsed_ns
from courier.store.disk_postgres.connection import ERRORS, Address, sentence
from courier.store.disk_postgres.database_time import DatabaseTime
from courier.store.disk_postgres.statements import GONE_S

EVERY_S = 0.005
# How often a node says that it lives.
BEAT_S = 0.5
# Longest time that a change of settings waits for other nodes.
SPREAD_S_MAX = 1.0
_SPREAD_LOOK_S = 0.05
AWAY_S = 1.0
CLOSE_S_MAX = 1.0

_BEAT = """
INSERT INTO node VALUES ($1, $2, clock_timestamp())
ON CONFLICT (token) DO UPDATE SET seen = excluded.seen, at = excluded.at
RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
"""
_LEAVE = "DELETE FROM node WHERE token = $1 OR at < clock_timestamp() - interval '1 day'"
_BEHIND = f"""
SELECT count(*) FROM node WHERE token <> $1 AND seen < $2
AND at > clock_timestamp() - interval '{GONE_S} s'
"""

log = logging.getLogger("courier.store")


class Notices:
    def __init__(self, address: Address, token: int, time: DatabaseTime) -> None:
        self._address = address
        self._time = time
        self._channel = f"courier_{address.schema}"
        self._token = token
        self._seen = 0
        self._due = asyncio.Event()
        self._must_beat = self._must_tell = False
        self._beat_ns = 0
        self._news = asyncio.Event()
        self._connection: Any = None
        self._busy = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._heard: Callable[[], None] = lambda: None
        self._closed = False

    def start(self, heard: Callable[[], None], seen: int) -> None:
        """`heard` is called when another node has written something."""
        self._heard = heard
        self._seen = seen
        self._task = asyncio.create_task(self._run())

    def tell(self) -> None:
        """This node has written something that others may wait for."""
        self._must_tell = True
        self._due.set()

    def saw(self, group: int, *, settings: bool) -> None:
        """This node knows all that was written up to this group, which others may wait for if
        settings are among it."""
        self._seen = group
        if settings:
            self._must_beat = self._must_tell = True
            self._due.set()

    async def spread(self, group: int) -> None:
        """Until every living node knows what this node wrote in this group."""
        with suppress(TimeoutError, *ERRORS):
            async with asyncio.timeout(SPREAD_S_MAX):
                while await self._behind(group):
                    self._news.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_SPREAD_LOOK_S):
                            await self._news.wait()

    async def _behind(self, group: int) -> bool:
        async with self._busy:
            if self._connection is None:
                return True
            return bool(await self._connection.fetchval(_BEHIND, self._token, group))

    async def close(self) -> None:
        """Leave, so that nobody waits for this node."""
        self._closed = True
        self._due.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S_MAX)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while not self._closed:
            try:
                await self._exchange()
                continue
            except ERRORS as error:
                log.warning("notices_lost", extra={"reason": sentence(self._address, error)})
            self._heard()
            await asyncio.sleep(AWAY_S)

    async def _exchange(self) -> None:
        connection = await self._address.connect()
        try:
            await connection.execute("SET synchronous_commit = off")
            await connection.add_listener(self._channel, self._told)
            await self._time.measure(connection)
            self._connection = connection
            self._must_beat = True
            while not self._closed:
                self._due.clear()
                async with self._busy:
                    await self._beat(connection)
                    if self._must_tell:
                        self._must_tell = False
                        told = (self._channel, str(self._token))
                        await connection.execute("SELECT pg_notify($1, $2)", *told)
                await asyncio.sleep(EVERY_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await self._due.wait()
            await connection.execute(_LEAVE, self._token)
        finally:
            self._connection = None
            connection.terminate()

    async def _beat(self, connection: Any) -> None:
        asked_ns = elapsed_ns()
        if not self._must_beat and asked_ns - self._beat_ns < BEAT_S * 1e9:
            return
        self._must_beat = False
        us: int = await connection.fetchval(_BEAT, self._token, self._seen)
        self._beat_ns = asked_ns
        self._time.answered(us, asked_ns=asked_ns)

    def _told(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if payload != str(self._token):
            self._heard()
            self._news.set()
