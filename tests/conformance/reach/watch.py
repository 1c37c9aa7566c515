"""What a key has done."""

import json
from typing import Any

from tests.conformance.reach.world import Credential, World


class Watch:
    """What happens from now on, as the journal has it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._after = world.operate("GET", "/journal/head")["last"]

    def events(self, by: Credential) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self._world.server.credentials['admin']['token']}"}
        page = self._world.http.get("/journal", params={"after": self._after}, headers=headers)
        found = [json.loads(line) for line in page.text.splitlines()]
        deeds = [event for event in found if event["kind"] != "signin_failed"]
        return [event for event in deeds if event["actor"] in by.ids]
