"""Stories that go on over the end of a server's process, many of them on one server.

A story is a generator: where it yields, the server goes and comes back. A start costs more than
most stories do, so all stories of a module go through the same ones; each has a tenant of its
own, and none sees what another does.
"""

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any

import httpx

from tests.faults.environment import Environment
from tests.server import Server, account_client

Story = Generator[None, None, None]
Again = Callable[[Server], None]
Ends = dict[str, Exception | None]

TURNS_MAX = 10


class Tenant:
    """Whom a story is about, to be spoken for in either dialect."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        answer = server.operate("POST", "/courier/v1/tenants", json={"name": name})
        assert answer.is_success, answer.text
        self.credentials: dict[str, Any] = answer.json()["credentials"]

    def client(self) -> httpx.Client:
        """At the root of its Cloudflare account. The caller closes it."""
        return account_client(self.credentials)

    @cached_property
    def environment(self) -> Environment:
        """Its Anypoint environment, with tokens from before the first restart."""
        return Environment(self.server, self.credentials["anypoint"])

    def pause(self) -> None:
        """Let go of a connection that would not outlive the server."""
        if "environment" in self.__dict__:
            self.environment.close()


class Stories:
    """The stories of a module, in the order in which they are told: `@story` adds one.

    Those in which something ends while the server is away come last, right before it goes.
    """

    def __init__(self) -> None:
        self._stories: dict[str, Callable[[Tenant], Story]] = {}

    def __call__(self, story: Callable[[Tenant], Story]) -> Callable[[Tenant], Story]:
        self._stories[story.__name__] = story
        return story

    @property
    def names(self) -> list[str]:
        return list(self._stories)

    def tell(self, server: Server, again: Again) -> Ends:
        """Tell all of them up to their next `yield`, let the server go and come back, and so on.

        How each story ended: with nothing, or with what it raised.
        """
        tenants = {name: Tenant(server, f"t{number}") for number, name in enumerate(self._stories)}
        told = {name: story(tenants[name]) for name, story in self._stories.items()}
        ends: Ends = {}
        try:
            for turn in range(TURNS_MAX):
                for name, story in told.items():
                    if name not in ends:
                        _go_on(name, story, ends, turn)
                        tenants[name].pause()
                if len(ends) == len(told):
                    return ends
                again(server)
        finally:
            for story in told.values():
                story.close()
        raise AssertionError(
            f"stories go on after {TURNS_MAX} restarts: {told.keys() - ends.keys()}"
        )


def _go_on(name: str, story: Story, ends: Ends, turn: int) -> None:
    try:
        next(story)
    except StopIteration:
        ends[name] = None if turn else AssertionError("the server never went")
    except Exception as error:
        ends[name] = error
