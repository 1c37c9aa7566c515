"""Names are looked up side by side, and once for all who ask."""

import asyncio
import socket
import time

import pytest

from courier.delivery import lookups
from courier.delivery.lookups import Found, Lookups

ADDRESS: Found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]


class Names:
    """A name server that never answers for `dead`, and has no other name than `here`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.never = asyncio.Event()

    async def look(self, host: str, port: int, family: int) -> Found:
        self.asked.append(host)
        if host.startswith("dead"):
            await self.never.wait()
        await asyncio.sleep(0)
        if host == "here":
            return ADDRESS
        raise socket.gaierror(socket.EAI_NONAME, "there is no such name")


async def test_all_who_ask_at_once_and_soon_after_share_one_lookup() -> None:
    names = Names()
    found = Lookups(names.look)
    assert await asyncio.gather(*(found.find("here", 80, 0) for _ in range(5))) == [ADDRESS] * 5
    assert await found.find("here", 80, 0) == ADDRESS
    assert names.asked == ["here"]
    await found.find("here", 443, 0)
    assert names.asked == ["here", "here"]


async def test_of_a_zone_with_thousands_of_addresses_a_few_are_used() -> None:
    """Each would be judged, perhaps connected to, and remembered."""
    four = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n % 256}", n)) for n in range(4_000)
    ]
    six = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"2001:db8::{n:x}", 80, 0, 0))
        for n in (1, 2, 3)
    ]

    async def look(host: str, port: int, family: int) -> Found:
        return [*four, *six]

    assert await Lookups(look).find("many", 80, 0) == [*four[:2], *six[:2]]


async def test_a_failure_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    found = Lookups(names.look)
    for _ in range(3):
        with pytest.raises(OSError, match="no such name"):
            await found.find("gone", 80, 0)
    assert names.asked == ["gone"]
    monkeypatch.setattr(lookups, "REMEMBERED_S", 0.0)
    with pytest.raises(OSError, match="no such name"):
        await found.find("gone", 80, 0)
    assert names.asked == ["gone", "gone"]


async def test_names_without_an_answer_hold_up_no_other_and_who_gives_up_ends_nothing() -> None:
    names = Names()
    found = Lookups(names.look)
    dead = [asyncio.create_task(found.find(f"dead{n}", 80, 0)) for n in range(60)]
    again = asyncio.create_task(found.find("dead0", 80, 0))
    await asyncio.sleep(0)
    assert await found.find("here", 80, 0) == ADDRESS
    dead[0].cancel()
    await asyncio.sleep(0)
    assert not again.done()
    names.never.set()
    with pytest.raises(OSError, match="no such name"):
        await again
    await asyncio.gather(*dead, return_exceptions=True)


async def test_however_many_names_of_a_zone_are_dead_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names()
    found = Lookups(names.look)
    await found.find("here", 80, 0)
    dead = [
        asyncio.create_task(found.find(f"dead{n}.example.com", 80, 0))
        for n in range(10 * lookups.LOOKUPS_MAX)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(names.asked) < lookups.LOOKUPS_MAX
    with pytest.raises(OSError, match="no such name"):
        await found.find("gone.example.org", 80, 0)
    monkeypatch.setattr(lookups, "REMEMBERED_S", 0.0)
    assert await found.find("here", 80, 0) == ADDRESS
    names.never.set()
    await asyncio.gather(*dead, return_exceptions=True)
    assert len(names.asked) == 10 * lookups.LOOKUPS_MAX + 3


async def test_the_systems_own_answers_and_refusals_come_from_a_thread() -> None:
    found = Lookups()
    places = await found.find("127.0.0.1", 80, socket.AF_INET)
    assert [place[4] for place in places] == [("127.0.0.1", 80)]
    with pytest.raises(OSError):
        await found.find("a" * 64 + ".example", 80, 0)


def test_a_loop_that_ends_does_not_wait_for_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> list[object]:
        time.sleep(5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def main() -> None:
        task = asyncio.create_task(Lookups().find("slow", 80, 0))
        await asyncio.sleep(0.05)
        task.cancel()

    began_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began_s < 4
