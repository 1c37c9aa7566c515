"""Every route of every site, as the server itself declares them."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from courier.app import build
from courier.clock import SteadyClock
from courier.config import Config
from courier.store.memory import MemoryStore
from courier.web import Route


class Place(NamedTuple):
    """A route, and where its site is mounted."""

    site: str
    prefix: str
    route: Route

    def __str__(self) -> str:
        return f"{self.site} {self.route.method} {self.prefix}{self.route.path}"


def places(directory: Path) -> list[Place]:
    async def read() -> list[Place]:
        courier = build(
            MemoryStore(), Config(data=directory), SteadyClock(0, step_wait_ms=0), port=0
        )
        return [
            Place(site.name, site.prefix, route)
            for site in courier.app.sites
            for route in site.routes()
        ]

    return asyncio.run(read())
