"""The power goes while tenants are made: keys and credentials are as durable as the store.

A server's own wiring runs on a disk that remembers every call. Cut anywhere, what was answered must
be there and usable: the tenant, its file with secrets that the store knows, and the key that opens
what is sealed.
"""

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from courier import app
from courier.clock import SteadyClock
from courier.clock_record import ClockRecord
from courier.config import Config
from courier.core.keys import Keyring
from courier.core.types import BROKER, Key, Tenant
from courier.dialects.anypoint.clients import _secret
from courier.files import make_directory
from tests.faults.images import write_image
from tests.faults.lying import LyingDisk, lying_disk
from tests.faults.test_power_loss import SEED

pytestmark = pytest.mark.slow
IMAGES = int(os.environ.get("IMAGES", "160")) // 4
NOW_MS = 1_700_000_000_000


class Started:
    """A server without sockets, on a directory."""

    def __init__(self, data: Path) -> None:
        self.config = Config(data=data)
        self.record = ClockRecord(data / "clock.json", boot_id="this", elapsed_ns=lambda: 0)

    async def __aenter__(self) -> "Started":
        self.store = await app.open_store(self.config)
        clock = SteadyClock(NOW_MS, step_wait_ms=0)
        self.courier = app.build(self.store, self.config, clock, port=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    async def check_tenant(self, tenant: Tenant) -> None:
        """Its file is there, and everything in it is good."""
        made = self.courier.credentials.load(tenant.name)
        known = Keyring(self.store.records)
        site = made["anypoint"]
        for kind, secret in {
            "token": made["cloudflare"]["api_token"],
            "app": site["client_secret"],
            "connected_app": site["connected_app"]["client_secret"],
        }.items():
            assert (await known.prove(secret, now_ms=NOW_MS, kind=kind)).key.tenant == tenant.id
        [sealed] = [
            key for key in self.store.records.scan(Key, tenant=tenant.id) if key.kind == "app"
        ]
        assert _secret(sealed, app.sealer_of(self.config)) == site["client_secret"]


async def story(disk: LyingDisk, data: Path) -> list[tuple[int, set[str], bytes]]:
    """What is answered from which call on: tenants, and the secret that signs leases."""
    marks: list[tuple[int, set[str], bytes]] = [(0, set(), b"")]
    make_directory(data)
    answered: set[str] = set()
    async with Started(data) as started:
        for name in ("default", "acme"):
            tenant, _ = await started.courier.credentials.create_tenant(name)
            answered.add(name)
            marks.append((len(disk.log), set(answered), started.store.secret))
            started.record.keep(NOW_MS + 1_000 * len(answered))
        marks.append((len(disk.log), {"default"}, started.store.secret))
        await started.courier.credentials.rename_tenant(tenant, "renamed", actor=BROKER)
        marks.append((len(disk.log), {"default", "renamed"}, started.store.secret))
    async with Started(data) as started:
        await started.courier.credentials.create_tenant("late")
        marks.append((len(disk.log), {"default", "renamed", "late"}, started.store.secret))
    return marks


async def judge(data: Path, answered: set[str], secret: bytes) -> None:
    async with Started(data) as started:
        if secret:
            assert started.store.secret == secret, "leases that were answered are void"
        tenants = started.store.records.scan(Tenant)
        assert answered <= {tenant.name for tenant in tenants}
        for tenant in tenants:
            await started.check_tenant(tenant)
        if (data / "clock.json").exists():
            assert started.record.read() in (NOW_MS + 1_000, NOW_MS + 2_000)


def test_a_power_loss_leaves_every_tenant_with_its_file_and_its_keys(tmp_path: Path) -> None:
    root = tmp_path / "story"
    root.mkdir()
    with lying_disk(root, recording=True) as disk:
        marks = asyncio.run(story(disk, root / "data"))
    for number in range(IMAGES):
        chance = random.Random(f"{SEED}-{number}-files")
        cut = chance.randint(0, len(disk.log))
        image = tmp_path / f"{number}"
        write_image(disk.log[:cut], chance, root=root, target=image)
        (image / "data").mkdir(exist_ok=True)
        _, answered, secret = [mark for mark in marks if mark[0] <= cut][-1]
        try:
            asyncio.run(judge(image / "data", answered, secret))
        except Exception as error:
            raise AssertionError(f"SEED={SEED} image {number} cut after {cut}: {error}") from error
        shutil.rmtree(image)
