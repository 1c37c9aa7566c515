"""The route tables of all sites, as a server has them."""

import asyncio
from pathlib import Path

from courier import app
from courier.clock import SteadyClock
from courier.config import Config
from courier.web import Route, Site
from tests.oracle.store import Oracle


def tables(directory: Path) -> list[tuple[Site, Route]]:
    """Every route of every site; the same path under another prefix is another route."""

    async def sites() -> list[Site]:
        clock = SteadyClock(0, step_wait_ms=0)
        return app.build(Oracle(), Config(data=directory), clock, port=1).app.sites

    return [(site, route) for site in asyncio.run(sites()) for route in site.routes()]
