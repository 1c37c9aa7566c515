"""TLS of our own: the certificate, its reload, and what clients see."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from courier.tls import Certificate
from courier.traffic import TrafficLimits
from tests import certificates
from tests.cli.command import Command
from tests.server import Server, client_of, free_port

CHANGE_SECONDS_MAX = 10.0


def shown(server: Server, trusted: Path) -> bytes:
    """The certificate that a client sees, who trusts nothing but the file."""
    context = ssl.create_default_context(cafile=str(trusted))
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as channel,
    ):
        found = channel.getpeercert(binary_form=True)
        assert found is not None
        return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encrypted")


def test_the_command_says_what_a_certificate_that_is_not_trusted_needs(folder: Path) -> None:
    with Server(folder, encrypted=True).start() as server:
        courier = Command("--data", str(server.data))
        refused = courier.attempt("queue", "list", environ={"SSL_CERT_FILE": os.devnull})
        assert refused.status == 3 and refused.err.endswith("to the file of its issuer\n")
        trusted = {"SSL_CERT_FILE": str(folder / certificates.TRUSTED)}
        assert courier.attempt("queue", "list", environ=trusted).status == 0


def test_everything_says_https_and_clients_that_trust_the_certificate_are_served(
    folder: Path,
) -> None:
    with Server(folder, encrypted=True).start() as server:
        trusted = ssl.create_default_context(cafile=str(folder / certificates.TRUSTED))
        account = server.credentials["cloudflare"]
        assert account["base_url"] == f"https://127.0.0.1:{server.port}/client/v4"
        assert f"Courier is running on https://127.0.0.1:{server.port}" in server.log()
        url = f"{account['base_url']}/accounts/{account['account_id']}"
        with client_of(url, account["api_token"], verify=trusted) as client:
            made = client.post("/queues", json={"queue_name": "hello"}).json()["result"]
            path = f"/queues/{made['queue_id']}/messages"
            long = "x" * 120_000
            for _ in range(3):
                sent = client.post(path, json={"body": long, "content_type": "text"})
                assert sent.status_code == 200
            peeked = client.post(f"{path}/peek", json={"batch_size": 10}).json()["result"]
            assert [message["body"] for message in peeked["messages"]] == [long] * 3
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health", trust_env=False)  # which trusts others


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_plain_http_and_old_versions_are_not_spoken(folder: Path) -> None:
    with Server(folder, encrypted=True).start() as server:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/health", trust_env=False)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            old.wrap_socket(plain)


def test_handshake_that_is_not_finished_is_cut_off_and_holds_up_nobody(folder: Path) -> None:
    wait = {"COURIER_HEADER_WAIT_MS_MAX": "500"}
    with (
        Server(folder, encrypted=True, env=wait).start() as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as silent,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow,
    ):
        slow.sendall(b"\x16\x03\x01")
        began = time.monotonic()
        assert httpx.get(f"{server.url}/health", verify=False, trust_env=False).status_code == 200
        for channel in (silent, slow):
            assert channel.recv(1_000) == b""
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02"])
def test_handshakes_that_are_not_finished_give_way_to_later_ones(folder: Path, said: bytes) -> None:
    with Server(folder, encrypted=True).start() as server, ExitStack() as stack:
        for _ in range(TrafficLimits().handshakes_max + 50):
            silent = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            stack.enter_context(silent).sendall(said)
        for _ in range(3):
            answer = httpx.get(f"{server.url}/health", verify=False, trust_env=False)
            assert answer.status_code == 200


def test_new_certificate_is_shown_without_a_restart(folder: Path) -> None:
    with Server(folder, encrypted=True).start() as server:
        trusted = folder / certificates.TRUSTED
        old = shown(server, trusted)
        with httpx.Client(verify=False, trust_env=False) as client:
            assert client.get(f"{server.url}/health").status_code == 200
            certificates.make(folder)
            os.kill(server.pid, signal.SIGHUP)
            wait_for(lambda: "certificate_reloaded" in server.log())
            assert shown(server, trusted) != old
            # A connection that was open before goes on.
            assert client.get(f"{server.url}/health").status_code == 200


def test_files_that_change_are_loaded_again_and_others_are_not(folder: Path) -> None:
    """What the server looks for every half minute."""
    certificates.make(folder)
    loaded = Certificate(*(str(folder / name) for name in ("trusted.pem", "secret.pem")))
    first = loaded.context
    loaded.reload_if_changed()
    assert loaded.context is first
    (folder / "secret.pem").rename(folder / "aside.pem")
    loaded.reload_if_changed()
    assert loaded.context is first
    certificates.make(folder)
    loaded.reload_if_changed()
    second = loaded.context
    assert second is not first
    (folder / "secret.pem").write_bytes((folder / "aside.pem").read_bytes())
    loaded.reload_if_changed()
    assert loaded.context is second, "a key of another certificate"


def test_bad_certificate_is_reported_and_the_good_one_stays(folder: Path) -> None:
    with Server(folder, encrypted=True).start() as server:
        trusted = folder / certificates.TRUSTED
        good = trusted.read_bytes()
        old = shown(server, trusted)
        trusted.write_bytes(b"not a certificate")
        os.kill(server.pid, signal.SIGHUP)
        wait_for(lambda: "certificate_not_reloaded" in server.log())
        assert "trusted.pem" in server.log()
        trusted.write_bytes(good)
        assert shown(server, trusted) == old


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + CHANGE_SECONDS_MAX
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        ("trusted.pem", "", "tls_certificate and tls_key belong together"),
        ("", "secret.pem", "tls_certificate and tls_key belong together"),
        ("missing.pem", "secret.pem", "cannot read"),
        ("trusted.pem", "missing.pem", "cannot read"),
        ("secret.pem", "trusted.pem", "no certificate and its key"),
        ("empty.pem", "secret.pem", "no certificate and its key"),
        ("trusted.pem", "other.pem", "KEY_VALUES_MISMATCH"),
        (".", "secret.pem", "cannot read"),
    ],
)
def test_start_with_bad_files_fails_in_one_line(
    folder: Path, certificate: str, key: str, sentence: str
) -> None:
    certificates.make(folder)
    os.rename(folder / certificates.SECRET, folder / "other.pem")
    certificates.make(folder)
    (folder / "empty.pem").touch()
    args = ["--data", str(folder / "data"), "--port", str(free_port())]
    for flag, name in (("--tls-certificate", certificate), ("--tls-key", key)):
        args += [flag, str(folder / name)] if name else []
    ended = subprocess.run(
        [sys.executable, "-m", "courier", "serve", *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    [line] = ended.stderr.strip().splitlines()
    assert line.startswith("courier: ") and sentence in line


def test_bad_networks_of_proxies_fail_in_one_line(folder: Path) -> None:
    args = ["--data", str(folder / "data"), "--trusted-proxies", "10.0.0.0/99"]
    ended = subprocess.run(
        [sys.executable, "-m", "courier", "serve", *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    [line] = ended.stderr.strip().splitlines()
    assert "trusted_proxies: '10.0.0.0/99' is not a network" in line


def test_address_beyond_a_trusted_proxy_is_the_one_that_is_locked_out(folder: Path) -> None:
    """Bad keys of one client behind a proxy do not lock out another one."""
    with (
        Server(folder, env={"COURIER_TRUSTED_PROXIES": "127.0.0.0/8"}).start() as server,
        httpx.Client(base_url=f"{server.url}/v1", verify=False, trust_env=False) as client,
    ):
        bad = {"X-API-KEY": "bad", "X-Forwarded-For": "9.9.9.9, 203.0.113.1"}
        statuses = [client.get("/queues", headers=bad).status_code for _ in range(12)]
        assert statuses[0] == 401 and statuses[-1] != 401
        key = server.credentials["discue"]["api_key"]
        for source in ("203.0.113.2", "9.9.9.9"):
            good = {"X-API-KEY": key, "X-Forwarded-For": source}
            assert client.get("/queues", headers=good).status_code == 200
