"""Servers that share a database go by its clock, whatever their own says."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from courier.sealing import new_key
from tests import postgres
from tests.faults.account import metrics_of, wait_until
from tests.faults.steered import SteeredServer

pytestmark = pytest.mark.slow

FAR_MS = 20_000
# Far more than a busy machine holds up a request, far less than FAR_MS.
NEAR_MS = 8_000


def test_a_server_whose_clock_is_off_goes_by_that_of_the_database(tmp_path: Path) -> None:
    keys = {"COURIER_ENCRYPTION_KEYS": new_key()}
    store = ["--store", postgres.url_of(tmp_path / "clock")]
    server = SteeredServer(tmp_path, step_wait_ms=1_000)
    command = [sys.executable, "-m", "courier", "init", *store, "--data", str(server.data)]
    env = {**os.environ, **keys}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    server.args += store
    server._env.update(keys)
    server.set_wall(FAR_MS)
    with server.start():
        wait_until(lambda: "clock_differs_from_database" in server.log(), "nothing is logged")
        name = "courier_database_clock_offset_seconds "
        (line,) = [each for each in metrics_of(server).splitlines() if each.startswith(name)]
        assert abs(float(line.removeprefix(name)) - FAR_MS / 1_000) < NEAR_MS / 1_000
        answer = server.operate("POST", "/courier/v1/tenants", json={"name": "timed"})
        assert answer.status_code < 300, answer.text
        now_ms = int(time.time() * 1_000)
        before, upto = [
            server.operate("GET", "/journal/head", params={"at_ms": at_ms}).json()
            for at_ms in (now_ms - NEAR_MS, now_ms + NEAR_MS)
        ]
        assert before["before"] < upto["before"] == upto["last"]
        server.set_wall(0)
        wait_until(lambda: "clock_agrees_with_database" in server.log(), "it stays off")
