"""The route tables of all sites, as a server has them."""

import asyncio
from pathlib import Path

from courier import app
from courier.config import Config
from courier.store.memory import MemoryStore
from courier.web import Route, Site


def tables(directory: Path) -> list[tuple[Site, Route]]:
    """Every route of every site; the same path under another prefix is another route."""

    async def sites() -> list[Site]:
        built = app.build(MemoryStore(), Config(data=directory), port=1)
        return [mounted.site for mounted in built.app._mounted]

    return [(site, route) for site in asyncio.run(sites()) for route in site.routes()]
