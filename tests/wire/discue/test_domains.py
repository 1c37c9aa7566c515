"""Domains: claimed, shown with their challenge, verified over HTTPS, renamed, deleted."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import certificates
from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.delivery.receiver import Answer, Receiver, closed_port, hang, redirect, status
from tests.server import Server
from tests.wire.discue.conftest import SERVER_ARGS
from tests.wire.discue.receiving import Host

DAY_MS = 24 * 3_600_000
CONTEXT_PATH = ".well-known/queue-challenge"
CALLS: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PUT", "", {}),
    ("DELETE", "", None),
    ("POST", "/verify", None),
]


def body(**members: Any) -> dict[str, Any]:
    return {"alias": new_name("d"), "hostname": "app.example", "port": 443, **members}


def create(client: DiscueClient, **members: Any) -> dict[str, Any]:
    made = ok(client.post("/domains", body(**members)))
    domain: dict[str, Any] = made["domain"]
    assert made["_links"]["self"]["href"].endswith(f"{client.prefix}/domains/{domain['id']}")
    return domain


def read(client: DiscueClient, id: str) -> dict[str, Any]:
    found: dict[str, Any] = ok(client.get(f"/domains/{id}"))["domain"]
    return found


def listed(client: DiscueClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(client.get("/domains"))["domains"]
    return found


# --- made and read ---


def test_a_new_domain_is_shown_with_its_challenge(discue: DiscueClient) -> None:
    alias = new_name("d")
    made = create(discue, alias=alias)
    assert ID.fullmatch(made["id"])
    challenge = made["challenge"]["https"]
    assert made == {
        "id": made["id"],
        "name": alias,
        "alias": alias,
        "hostname": "app.example",
        "port": 443,
        "challenge": {"https": challenge},
        "verification": {"verified": False, "verified_at": 0},
    }
    assert set(challenge) == {
        "context_path",
        "file_name",
        "file_content",
        "created_at",
        "expires_at",
    }
    assert challenge["context_path"] == CONTEXT_PATH
    assert challenge["expires_at"] - challenge["created_at"] == 7 * DAY_MS
    assert len(challenge["file_name"]) >= 20 and "/" not in challenge["file_name"]
    assert len(challenge["file_content"]) >= 40
    assert read(discue, made["id"]) == made
    other = create(discue)["challenge"]["https"]
    assert other["file_name"] != challenge["file_name"]
    assert other["file_content"] != challenge["file_content"]


@pytest.mark.parametrize("port", [80, 443, 1024, 8443, 65_535])
def test_ports_that_a_domain_may_have(discue: DiscueClient, port: int) -> None:
    assert create(discue, port=port)["port"] == port


@pytest.mark.parametrize("port", [0, 22, 81, 442, 1023, 65_536])
def test_ports_that_a_domain_may_not_have(discue: DiscueClient, port: int) -> None:
    before = listed(discue)
    assert pointers(discue.post("/domains", body(port=port))) == ["/port"]
    assert listed(discue) == before


@pytest.mark.parametrize(
    "hostname", ["a.io", "app.example", "a-b.c-d.example", "127.0.0.1", "x" * 253, "0000"]
)
def test_hostnames_that_a_domain_may_have(discue: DiscueClient, hostname: str) -> None:
    assert create(discue, hostname=hostname)["hostname"] == hostname


def test_hostnames_are_shown_in_lower_case(discue: DiscueClient) -> None:
    made = create(discue, hostname="App.EXAMPLE")
    assert made["hostname"] == "app.example"
    assert ok(discue.put(f"/domains/{made['id']}", {"hostname": "APP.example"}))["domain"] == made


@pytest.mark.parametrize(
    "hostname",
    [
        "",
        "a.b",
        "x" * 254,
        ".app.example",
        "app.example.",
        "-app.example",
        "app.example-",
        "app_1.example",
        "app.example/x",
        "http://app.example",
        "app.example:443",
        "user@app.example",
        "a b.example",
        "münchen.example",
        "app.example\n",
        "[::1]",
        "*.example",
    ],
)
def test_hostnames_that_a_domain_may_not_have(discue: DiscueClient, hostname: str) -> None:
    before = listed(discue)
    assert pointers(discue.post("/domains", body(hostname=hostname))) == ["/hostname"]
    assert listed(discue) == before


# --- changed and deleted ---


def test_only_the_alias_can_be_changed(discue: DiscueClient) -> None:
    made = create(discue)
    path = f"/domains/{made['id']}"
    assert pointers(discue.put(path, {"hostname": "other.example"})) == ["/hostname"]
    assert pointers(discue.put(path, {"port": 80})) == ["/port"]
    assert read(discue, made["id"]) == made
    alias = new_name("d")
    asked = {"alias": alias, "hostname": made["hostname"], "port": made["port"]}
    changed = ok(discue.put(path, asked))["domain"]
    assert changed == {**made, "alias": alias, "name": alias} == read(discue, made["id"])
    assert ok(discue.put(path, {}))["domain"] == changed


def test_a_deleted_domain_is_gone(discue: DiscueClient) -> None:
    id = create(discue)["id"]
    ok(discue.delete(f"/domains/{id}"))
    assert id not in {each["id"] for each in listed(discue)}
    for method, suffix, sent in CALLS:
        fail(discue.request(method, f"/domains/{id}{suffix}", sent), 404)


# --- verified ---


@dataclass(frozen=True)
class Site:
    """A server that trusts a host of the tests', and a key to it."""

    client: DiscueClient
    host: Receiver
    server: Server
    trusted: Path

    def claim(self) -> tuple[dict[str, Any], str]:
        """A domain at that host, and the path where its file is looked for."""
        domain = create(self.client, hostname="127.0.0.1", port=self.host.port)
        return domain, f"/{CONTEXT_PATH}/{domain['challenge']['https']['file_name']}"

    def verify(self, domain: dict[str, Any]) -> bool:
        answer = ok(self.client.post(f"/domains/{domain['id']}/verify"))
        path = f"/v1/domains/{domain['id']}"
        assert answer["_links"]["self"]["href"].endswith(path)
        after = read(self.client, domain["id"])
        assert answer["domain"] == after
        assert {**after, "verification": domain["verification"]} == domain
        verified: bool = after["verification"]["verified"]
        assert verified == bool(after["verification"]["verified_at"])
        return verified


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("domains")
    trusted, context = certificates.make(folder)
    env = {"SSL_CERT_FILE": str(trusted)}
    with Host(tls=context) as host:
        server = Server(folder, args=SERVER_ARGS, env=env).start()
        with httpx.Client(base_url=server.url, timeout=30, trust_env=False, verify=False) as http:
            client = DiscueClient(http, server.credentials["discue"]["api_key"])
            yield Site(client, host, server, trusted)
        # First, because it ends the connections that it keeps to the host.
        server.stop()
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("newline", [b"", b"\n", b"\r\n"])
def test_the_right_file_verifies_a_domain(site: Site, newline: bytes) -> None:
    domain, path = site.claim()
    content = domain["challenge"]["https"]["file_content"].encode()
    site.host.on(path, status(200, content + newline))
    assert site.verify(domain)
    (came,) = site.host.received(path)
    assert came.method == "GET"
    assert came.headers["host"] == f"127.0.0.1:{site.host.port}"
    assert came.headers["user-agent"].startswith("Courier/")
    assert came.headers["accept-encoding"] == "identity"
    # It stays verified, and nobody looks again.
    site.host.on(path, status(404))
    assert site.verify(domain)
    assert len(site.host.received(path)) == 1


def near_misses(content: bytes) -> list[Answer]:
    return [
        status(200),
        status(200, b"something else"),
        status(200, content[:-1]),
        status(200, content + b"x"),
        status(200, content + b"\n\n"),
        status(200, content + b" "),
        status(200, b"\n" + content),
        status(200, content.upper()),
        status(200, b"<html>" + content + b"</html>"),
        status(200, content + b"x" * (1 << 20)),
        status(201, b""),
        status(404, content),
        status(500, content),
        redirect("/elsewhere", 302),
    ]


@pytest.mark.parametrize("number", range(len(near_misses(b"x"))))
def test_anything_else_does_not(site: Site, number: int) -> None:
    domain, path = site.claim()
    content = domain["challenge"]["https"]["file_content"].encode()
    site.host.on("/elsewhere", status(200, content))
    site.host.on(path, near_misses(content)[number])
    assert not site.verify(domain)
    assert len(site.host.received(path)) == 1
    assert site.host.received("/elsewhere") == []
    site.host.on(path, status(200, content))
    assert site.verify(domain)


@pytest.mark.slow
def test_a_host_that_says_nothing_is_not_waited_for_for_ever(site: Site) -> None:
    domain, path = site.claim()
    site.host.on(path, hang)
    assert not site.verify(domain)


def test_nobody_there_verifies_nothing(site: Site) -> None:
    domain = create(site.client, hostname="127.0.0.1", port=closed_port())
    assert not site.verify(domain)
    for hostname in ("no-such-host.invalid", "a..b.example", "x" * 253, "1.2.3.256"):
        assert not site.verify(create(site.client, hostname=hostname, port=443))


def test_a_host_without_a_good_certificate_verifies_nothing(
    discue: DiscueClient, site: Site
) -> None:
    """The usual server of these tests has no reason to trust this host."""
    domain = create(discue, hostname="127.0.0.1", port=site.host.port)
    challenge = domain["challenge"]["https"]
    path = f"/{CONTEXT_PATH}/{challenge['file_name']}"
    site.host.on(path, status(200, challenge["file_content"].encode()))
    answer = ok(discue.post(f"/domains/{domain['id']}/verify"))["domain"]
    assert answer["verification"]["verified"] is False
    assert site.host.received(path) == []


@pytest.mark.slow
def test_plain_http_is_for_port_80_only(discue: DiscueClient) -> None:
    with Host() as plain:
        domain = create(discue, hostname="127.0.0.1", port=plain.port)
        challenge = domain["challenge"]["https"]
        path = f"/{CONTEXT_PATH}/{challenge['file_name']}"
        plain.on(path, status(200, challenge["file_content"].encode()))
        answer = ok(discue.post(f"/domains/{domain['id']}/verify"))["domain"]
        assert answer["verification"]["verified"] is False
        assert plain.received(path) == []


def test_private_addresses_are_not_looked_at(
    tmp_path_factory: pytest.TempPathFactory, site: Site
) -> None:
    env = {"SSL_CERT_FILE": str(site.trusted)}
    server = Server(tmp_path_factory.mktemp("closed"), env=env).start()
    try:
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
            client = DiscueClient(http, server.credentials["discue"]["api_key"])
            before = site.host.connections
            for hostname in ("127.0.0.1", "localhost"):
                domain = create(client, hostname=hostname, port=site.host.port)
                answer = ok(client.post(f"/domains/{domain['id']}/verify"))["domain"]
                assert answer["verification"]["verified"] is False
            assert site.host.connections == before
    finally:
        server.stop()


def test_courier_looks_by_itself(site: Site) -> None:
    domain, path = site.claim()
    content = domain["challenge"]["https"]["file_content"].encode()
    site.host.on(path, status(200, content))
    (came,) = site.host.wait(path, 1, seconds=30)
    assert came.method == "GET"
    # The answer has been sent; noting it takes a moment.
    for _ in range(1_000):
        found = read(site.client, domain["id"])
        if found["verification"]["verified"]:
            break
    challenged_ms = domain["challenge"]["https"]["created_at"]
    assert 9_000 <= found["verification"]["verified_at"] - challenged_ms <= 25_000


def test_what_a_file_must_hold_is_in_no_journal(site: Site) -> None:
    domain, _ = site.claim()
    head = {"Authorization": f"Bearer {site.server.credentials['admin']['token']}"}
    journal = site.client.http.get("/journal?limit=50000", headers=head).text
    assert "domain_created" in journal
    assert domain["challenge"]["https"]["file_content"] not in journal
