"""`courier console`: a link that works once."""

import httpx

from tests.cli.command import Command
from tests.server import Server


def test_the_link_signs_in_once(server: Server, courier: Command) -> None:
    link = courier("console", "--print").out.strip()
    assert link.startswith(f"{server.url}/console/enter?code=")
    first = httpx.get(link)
    assert first.status_code == 303 and "courier_console=" in first.headers["set-cookie"]
    assert httpx.get(link).status_code == 401
