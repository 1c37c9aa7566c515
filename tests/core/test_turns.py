"""Turns: alone or shared, first come first served, and nothing is lost when a waiter gives up."""

import asyncio

from courier.core.turns import Turn


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Scene:
    def __init__(self) -> None:
        self.turn = Turn()
        self.inside: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, name: str, *, shared: bool) -> None:
        self._ends[name] = asyncio.Event()

        async def run() -> None:
            async with self.turn.shared() if shared else self.turn:
                self.inside.append(name)
                try:
                    await self._ends[name].wait()
                finally:
                    self.inside.remove(name)

        self._tasks[name] = asyncio.create_task(run())
        await settle()

    async def leave(self, name: str) -> None:
        self._ends[name].set()
        await settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await settle()


def test_those_who_share_are_in_together_and_one_alone_is_alone() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.enter("a", shared=True)
        await scene.enter("b", shared=True)
        await scene.enter("alone", shared=False)
        await scene.enter("c", shared=True)
        assert scene.inside == ["a", "b"]
        await scene.leave("a")
        assert scene.inside == ["b"]
        await scene.leave("b")
        assert scene.inside == ["alone"]
        await scene.enter("d", shared=True)
        await scene.leave("alone")
        assert scene.inside == ["c", "d"]

    asyncio.run(story())


def test_a_waiter_that_gives_up_holds_nobody_up() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.enter("a", shared=True)
        await scene.enter("alone", shared=False)
        await scene.enter("b", shared=True)
        await scene.cancel("alone")
        assert scene.inside == ["a", "b"]
        await scene.cancel("a")
        await scene.enter("next", shared=False)
        await scene.leave("b")
        assert scene.inside == ["next"]

    asyncio.run(story())


def test_a_turn_granted_to_one_that_was_cancelled_goes_on() -> None:
    async def story() -> None:
        turn = Turn()

        async def alone() -> None:
            async with turn:
                await asyncio.sleep(0)

        await turn.__aenter__()
        waiting = asyncio.create_task(alone())
        await settle()
        # Granted and cancelled before it could run.
        await turn.__aexit__()
        waiting.cancel()
        await settle()
        await asyncio.wait_for(alone(), 1)

    asyncio.run(story())
