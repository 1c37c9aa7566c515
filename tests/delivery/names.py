"""An event loop with a name server of its own: what a name stands for may change at every look."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar

T = TypeVar("T")


class NamesLoop(asyncio.SelectorEventLoop):
    """`names` has the addresses of each name, look by look; the last for all that follow."""

    def __init__(self, names: dict[str, list[Sequence[str]]]) -> None:
        super().__init__()
        self._names = names
        self.looked_up: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> list[Any]:
        self.looked_up.append(host)
        if host not in self._names:
            raise socket.gaierror(socket.EAI_NONAME, "there is no such name")
        answers = self._names[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_info(address, port) for address in addresses]


def _info(address: str, port: int) -> tuple[int, int, int, str, tuple[Any, ...]]:
    if ip_address(address.partition("%")[0]).version == 6:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


async def look(host: str, port: int, family: int) -> list[Any]:
    """Asks the loop that runs."""
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)


def run_with_names(
    names: dict[str, list[Sequence[str]]], main: Callable[[NamesLoop], Coroutine[Any, Any, T]]
) -> T:
    loop = NamesLoop(names)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))
