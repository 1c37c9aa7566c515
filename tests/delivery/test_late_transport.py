"""The client of pushes is loaded for the first of them, and not before."""

import asyncio
import subprocess
import sys

from courier.delivery.targets import Targets, networks
from courier.delivery.transport import LateTransport, Push, PushResult
from tests.delivery.receiver import Receiver

TIMEOUT_MS = 5_000


def python(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return ran.stdout + ran.stderr


def transport() -> LateTransport:
    return LateTransport(Targets(networks("127.0.0.0/8")), connections_max=10)


def test_the_server_does_not_load_it() -> None:
    shown = python("import sys, courier.app; print('aiohttp' in sys.modules)")
    assert shown == "False\n"


def test_that_it_is_missing_is_told_at_the_start() -> None:
    shown = python(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'aiohttp': sys.meta_path[:] = []\n"
        "sys.meta_path.insert(0, Without())\n"
        "import courier.app"
    )
    assert shown.endswith("ModuleNotFoundError: No module named 'aiohttp'\n")


def test_requests_that_come_while_it_loads_are_all_made(receiver: Receiver) -> None:
    async def main() -> list[PushResult]:
        late = transport()
        push = Push(receiver.url("/push"), b"body", {})
        try:
            return await asyncio.gather(
                *(late.send(push, timeout_ms=TIMEOUT_MS) for _ in range(3)),
                late.get(receiver.url("/page"), timeout_ms=TIMEOUT_MS),
            )
        finally:
            await late.close()

    assert [result.status for result in asyncio.run(main())] == [200] * 4
    assert (len(receiver.received("/push")), len(receiver.received("/page"))) == (3, 1)


def test_who_gives_up_while_it_loads_does_not_end_it_for_the_others(receiver: Receiver) -> None:
    async def main() -> PushResult:
        late = transport()
        push = Push(receiver.url("/push"), b"body", {})
        first, second = (
            asyncio.create_task(late.send(push, timeout_ms=TIMEOUT_MS)) for _ in range(2)
        )
        try:
            await asyncio.sleep(0)
            first.cancel()
            return await second
        finally:
            await late.close()

    assert asyncio.run(main()).status == 200
    assert len(receiver.received("/push")) == 1


def test_one_that_was_never_used_is_closed() -> None:
    asyncio.run(transport().close())
