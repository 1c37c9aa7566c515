"""Object storage for tests: moto's S3 server, in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.server import free_port

START_S_MAX = 60.0
POLL_S = 0.05
BUCKET = "lakes"


def variables() -> dict[str, str]:
    """What leads to a server that need not run yet; Spark's workers inherit it."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests-secret",
    }


@contextmanager
def bucket_server(env: dict[str, str] | None = None) -> Iterator[str]:
    """The server where the variables of this process say; the address of an empty bucket."""
    url = os.environ["AWS_ENDPOINT_URL"]
    port = url.rpartition(":")[2]
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    ) as process:
        try:
            _wait(url)
            httpx.put(f"{url}/{BUCKET}", content=_LOCATION).raise_for_status()
            yield f"s3://{BUCKET}"
        finally:
            process.kill()


_LOCATION = (
    b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>"
)


def _wait(url: str) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            httpx.get(f"{url}/moto-api/").raise_for_status()
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline_s, "moto's server does not start"
            time.sleep(POLL_S)
