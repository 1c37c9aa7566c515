"""Every route of every site, as the server itself declares them."""

from pathlib import Path
from typing import NamedTuple

from courier.web import Route
from tests.routes import tables


class Place(NamedTuple):
    """A route, and where its site is mounted."""

    site: str
    prefix: str
    route: Route

    def __str__(self) -> str:
        return f"{self.site} {self.route.method} {self.prefix}{self.route.path}"


def places(directory: Path) -> list[Place]:
    return [Place(site.name, site.prefix, route) for site, route in tables(directory)]
