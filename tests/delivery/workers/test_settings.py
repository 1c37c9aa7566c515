"""Where scripts run: the setting, records, and how the two go together."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from courier.delivery.places import BadPlaces, urls
from tests.cli.command import Command
from tests.delivery.receiver import Receiver
from tests.delivery.workers.scene import Scene, Sent
from tests.server import Server, account_client
from tests.wire.cloudflare.envelope import ok
from tests.wire.cloudflare.patience import eventually
from tests.wire.cloudflare.queue import Queue, new_name

WORKERS = "/tenants/default/workers"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        (" , ", {}),
        ("a=http://127.0.0.1:1/", {("first", "a"): "http://127.0.0.1:1/"}),
        (
            " a = https://a.example/x?y=z , b-2=http://[::1]:8000 ",
            {("first", "a"): "https://a.example/x?y=z", ("first", "b-2"): "http://[::1]:8000"},
        ),
        (
            "a=http://a/,other/a=http://b/,one/two/a=http://c/",
            {
                ("first", "a"): "http://a/",
                ("other", "a"): "http://b/",
                ("one/two", "a"): "http://c/",
            },
        ),
    ],
)
def test_the_setting_names_scripts_and_their_urls(
    text: str, read: dict[tuple[str, str], str]
) -> None:
    assert urls(text, tenant="first") == read


BAD_URLS = [
    "", "x", "ftp://a/", "http://", "//a/", "http:///x", "http://a:99999/", "http://a:0/",
    "http://user:word@a/", "http://user@a/", "http://a/#part", "http://a b/", "http://a/b c",
    "http://é/", "http://a/\x7f", "http://a/" + "x" * 3_000, "http://[::1", "http://a/{x}",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["a", "http://a/", "=http://a/", "a=http://a/,a=http://b/", "a=http://a/?x=1,2"]
    + ["first/a=http://a/,a=http://b/", "/a=http://a/", "other/=http://a/"]
    + [f"a={url}" for url in BAD_URLS],
)
def test_a_setting_that_cannot_be_used_says_why(text: str) -> None:
    with pytest.raises(BadPlaces, match=r"^worker_urls: [^\n]+$"):
        urls(text, tenant="first")


def test_a_bad_setting_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    command = Command("--data", str(tmp_path / "data"), "--port", "0")
    line = command.fails(1, "serve", "--worker-urls", "mill=ftp://127.0.0.1/")
    assert line.startswith("courier: worker_urls: 'mill=ftp://127.0.0.1/'")


# --- routes ---


@pytest.fixture
def name() -> str:
    return new_name("script")


def put(operator: httpx.Client, name: str, **body: Any) -> httpx.Response:
    return operator.put(f"{WORKERS}/{name}", json=body)


def listed(operator: httpx.Client) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in operator.get(WORKERS).json()["workers"]}


def test_a_worker_is_listed_until_it_is_removed(operator: httpx.Client, name: str) -> None:
    made = put(operator, name, url="http://127.0.0.1:1/x").json()
    assert made["secret"].startswith("whsec_")
    assert made["worker"] == listed(operator)[name]
    assert (made["worker"]["url"], made["worker"]["source"]) == ("http://127.0.0.1:1/x", "record")
    assert "secret" not in str(listed(operator)[name])
    assert operator.delete(f"{WORKERS}/{name}").status_code == 200
    assert name not in listed(operator)
    assert operator.delete(f"{WORKERS}/{name}").status_code == 404
    assert operator.get(f"{WORKERS}/{name}/secret").status_code == 404


def test_a_worker_keeps_its_secret_when_it_moves(operator: httpx.Client, name: str) -> None:
    first = put(operator, name, url="http://127.0.0.1:1/x").json()
    second = put(operator, name, url="http://127.0.0.1:2/y").json()
    assert second["secret"] == first["secret"]
    assert listed(operator)[name]["url"] == "http://127.0.0.1:2/y"
    assert operator.get(f"{WORKERS}/{name}/secret").json() == {"secret": first["secret"]}


def test_a_worker_has_the_secret_it_is_given(operator: httpx.Client, name: str) -> None:
    secret = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    assert put(operator, name, url="http://a/", secret=secret).json()["secret"] == secret


@pytest.mark.parametrize("url", BAD_URLS)
def test_an_address_that_cannot_be_called_is_refused(
    operator: httpx.Client, name: str, url: str
) -> None:
    answer = put(operator, name, url=url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert name not in listed(operator)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", "A" * 40, "whsec_" + "A" * 41, "whsec_" + "é" * 40,
               "whsec_" + "A" * 200, "whsec_" + "A" * 38 + "\n", 5, None],
)  # fmt: skip
def test_a_secret_of_another_form_is_refused(
    operator: httpx.Client, name: str, secret: Any
) -> None:
    assert put(operator, name, url="http://a/", secret=secret).status_code == 400
    assert name not in listed(operator)


@pytest.mark.parametrize("name", ["%20%0A", "x" * 256, "%C2%85"])
def test_a_name_that_no_script_has_is_refused(operator: httpx.Client, name: str) -> None:
    assert put(operator, name, url="http://a/").status_code == 400


def test_workers_are_the_operators_business(
    server: Server, operator: httpx.Client, name: str
) -> None:
    put(operator, name, url="http://a/")
    token = server.credentials["cloudflare"]["api_token"]
    headers = {"Authorization": f"Bearer {token}"}
    asked = [("GET", ""), ("PUT", f"/{name}"), ("DELETE", f"/{name}"), ("GET", f"/{name}/secret")]
    for method, path in asked:
        body = {"url": "http://b/"}
        answer = operator.request(method, WORKERS + path, json=body, headers=headers)
        assert answer.status_code == 403
    assert listed(operator)[name]["url"] == "http://a/"


def test_a_worker_belongs_to_one_tenant_and_goes_with_it(
    server: Server, operator: httpx.Client, name: str
) -> None:
    tenant = new_name("tenant")
    assert operator.post("/tenants", json={"name": tenant}).status_code == 200
    own = f"/tenants/{tenant}/workers/{name}"
    secret = operator.put(own, json={"url": "http://a/"}).json()["secret"]
    assert name not in listed(operator)
    assert operator.delete(f"/tenants/{tenant}").status_code == 200
    assert operator.get(f"{own}/secret").status_code == 404
    journal = operator.get(f"{server.url}/journal?limit=50000").text
    events = [line for line in journal.split("\n") if f'"name":"{name}"' in line]
    assert [json.loads(event)["kind"] for event in events] == ["worker_created", "worker_deleted"]
    assert secret not in journal and "sealed" not in "".join(events)


# --- the setting ---


@pytest.fixture
def configured(
    tmp_path_factory: pytest.TempPathFactory, receiver: Receiver
) -> Iterator[tuple[Server, httpx.Client]]:
    """A server that was told of `mill` by its setting."""
    args = ["--worker-urls", f"mill={receiver.url('/setting')}"]
    server = Server(tmp_path_factory.mktemp("configured"), args=args).start()
    with server.operator() as operator:
        yield server, operator
    server.stop()


@pytest.mark.slow
def test_a_record_wins_over_the_setting(
    configured: tuple[Server, httpx.Client], receiver: Receiver
) -> None:
    server, operator = configured
    assert listed(operator)["mill"]["source"] == "setting"
    by_setting = operator.get(f"{WORKERS}/mill/secret").json()["secret"]
    refused = operator.delete(f"{WORKERS}/mill")
    assert refused.status_code == 400 and "worker_urls" in refused.text
    with server.client() as http:
        queue = Queue.create(http)
        body = {"type": "worker", "script_name": "mill", "settings": {"max_wait_time_ms": 0}}
        ok(queue.post("/consumers", body))
        queue.push("1")
        assert Sent(receiver.wait("/setting", 1)[0], by_setting).bodies == ["1"]
        by_record = put(operator, "mill", url=receiver.url("/record")).json()["secret"]
        assert (listed(operator)["mill"]["source"], len(listed(operator))) == ("record", 1)
        assert by_record != by_setting
        queue.push("2")
        assert Sent(receiver.wait("/record", 1)[0], by_record).bodies == ["2"]
        assert operator.delete(f"{WORKERS}/mill").status_code == 200
        queue.push("3")
        assert Sent(receiver.wait("/setting", 2)[1], by_setting).bodies == ["3"]
        eventually(lambda: queue.backlog() == 0)
        server.restart()
        assert operator.get(f"{WORKERS}/mill/secret").json()["secret"] == by_setting


@pytest.mark.slow
def test_another_tenants_worker_of_the_same_name_is_not_called(scene: Scene) -> None:
    tenant = new_name("tenant")
    assert scene.operator.post("/tenants", json={"name": tenant}).status_code == 200
    scene.operator.delete(f"{WORKERS}/{scene.script}")
    other = f"/tenants/{tenant}/workers/{scene.script}"
    scene.operator.put(other, json={"url": scene.receiver.url("/other")})
    before = scene.metric("courier_workers_missing")
    scene.consume()
    scene.queue.push("x")
    eventually(lambda: scene.metric("courier_workers_missing") == before + 1)
    assert scene.receiver.received("/other") == []


def publish_to_mill(server: Server, tenant: str) -> int:
    """A message for the tenant's worker `mill`; how many wait a moment later."""
    file = "credentials.json" if tenant == "default" else f"credentials.{tenant}.json"
    with account_client(json.loads((server.data / file).read_bytes())) as http:
        queue = Queue.create(http)
        settings = {"max_wait_time_ms": 0}
        ok(
            queue.post(
                "/consumers", {"type": "worker", "script_name": "mill", "settings": settings}
            )
        )
        queue.push(tenant)
        eventually(lambda: queue.backlog() == 0 or "worker_url_missing" in server.log())
        return queue.backlog()


@pytest.mark.slow
def test_workers_of_the_setting_are_one_tenants_own(tmp_path: Path, receiver: Receiver) -> None:
    """Neither does another tenant reach them by name, nor does its secret sign for them."""
    places = f"mill={receiver.url('/default')},acme/mill={receiver.url('/acme')}"
    server = Server(tmp_path, args=["--worker-urls", places]).start()
    with server, server.operator() as operator:
        secrets = {}
        for tenant in ("default", "acme", "third"):
            if tenant != "default":
                assert operator.post("/tenants", json={"name": tenant}).status_code == 200
            workers = f"/tenants/{tenant}/workers"
            secrets[tenant] = operator.get(f"{workers}/mill/secret").json().get("secret", "")
            names = [each["name"] for each in operator.get(workers).json()["workers"]]
            assert names == ([] if tenant == "third" else ["mill"])
        assert secrets["third"] == "" and secrets["default"] != secrets["acme"]
        for tenant in ("default", "acme"):
            assert publish_to_mill(server, tenant) == 0
            [received] = receiver.received(f"/{tenant}")
            assert Sent(received, secrets[tenant]).bodies == [tenant]
            assert len(received.headers["webhook-signature"].split()) == 1
        assert publish_to_mill(server, "third") == 1
        with pytest.raises(WebhookVerificationError):
            Sent(receiver.received("/acme")[0], secrets["default"])
        assert len(receiver.received("/default")) == len(receiver.received("/acme")) == 1
