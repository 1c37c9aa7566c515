"""What holds for every path: prefixes, keys, media types, links, errors, pages, versions."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import httpx
import pytest

from courier.dialects.discue.lockout import LockedOut, Lockout
from tests.clients.discue import ID, DiscueClient, discue_http, fail, new_name, ok
from tests.server import Server

UNKNOWN = "AAAAAAAAAAAAAAAAAAAAA"
DOCUMENTED = {
    *(("GET", path) for path in (
        "/queues", "/queues/{}", "/queues/{}/schemas/{}", "/listeners", "/queues/{}/listeners",
        "/queues/{}/listeners/{}", "/messages", "/queues/{}/messages", "/queues/{}/messages/{}",
        "/api_keys", "/api_keys/{}", "/events", "/stats/messages", "/domains/{}")),
    *(("POST", path) for path in (
        "/queues", "/queues/{}/listeners", "/queues/{}/messages", "/api_keys", "/api_clients",
        "/domains")),
    *(("PUT", path) for path in (
        "/queues/{}", "/queues/{}/listeners/{}", "/queues/{}/messages/{}", "/api_keys/{}",
        "/api_clients/{}", "/domains/{}")),
    *(("DELETE", path) for path in (
        "/queues/{}", "/queues/{}/listeners/{}", "/queues/{}/messages/{}", "/api_keys/{}",
        "/domains/{}")),
}  # fmt: skip


@pytest.fixture(scope="module")
def standing(discue: DiscueClient) -> str:
    """A queue for requests that must change nothing."""
    return discue.new_queue()


# --- prefixes --------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_every_call_on_queues_and_messages_answers_under_either_prefix(
    discue: DiscueClient, prefix: str
) -> None:
    client = discue.under(prefix)
    answers = [client.post("/queues", {"name": new_name(), "schema": {"a": {"type": "string"}}})]
    queue = ok(answers[0])["queue"]
    path = f"/queues/{queue['id']}"
    answers.append(client.post(f"{path}/messages", {"data": '{"a":"b"}'}))
    message = f"{path}/messages/{ok(answers[1])['message']['id']}"
    answers += [
        client.get("/queues"),
        client.get(path),
        client.put(path, {"alias": new_name()}),
        client.get(f"{path}/schemas/{queue['schema_id']}"),
        client.get("/messages"),
        client.get(f"{path}/messages"),
        client.get(message),
        client.put(message, {"name": "other"}),
        client.delete(message),
        client.delete(path),
    ]
    base = f"{client.http.base_url}".rstrip("/") + prefix
    for answer in answers:
        for link in ok(answer)["_links"].values():
            assert re.match(re.escape(base) + "/(queues|messages)", link["href"]), link


# --- the description -------------------------------------------------------------------------


def test_the_description_names_every_documented_operation(http: httpx.Client) -> None:
    document = http.get("/v1/openapi.json").json()
    described = {
        (method.upper(), re.sub(r"{\w+}", "{}", path.removeprefix("/v1")))
        for path, item in document["paths"].items()
        for method in item
    }
    assert len(DOCUMENTED) == 31
    assert described >= DOCUMENTED


# --- keys ------------------------------------------------------------------------------------


def test_the_key_is_taken_from_its_own_header_only(
    stranger: httpx.Client, discue: DiscueClient
) -> None:
    fail(stranger.get("/v1/queues", headers={"Authorization": f"Bearer {discue.key}"}), 401)
    fail(stranger.get("/v1/queues", params={"X-API-KEY": discue.key}), 401)
    ok(stranger.get("/v1/queues", headers={"x-api-key": discue.key}))
    ok(stranger.get("/v1/queues", headers={"X-Api-Key": discue.key}))


@pytest.mark.parametrize("kind", ["client_secret", "connected_app"])
def test_credentials_that_are_traded_for_sessions_elsewhere_are_no_keys(
    stranger: httpx.Client, server: Server, kind: str
) -> None:
    anypoint = server.credentials["anypoint"]
    secret = anypoint[kind] if kind == "client_secret" else anypoint[kind]["client_secret"]
    fail(stranger.get("/v1/queues", headers={"X-API-KEY": secret}), 401)


def test_ten_bad_keys_refuse_further_bad_ones_of_the_address_but_no_good_one(
    server: Server, stranger: httpx.Client, discue: DiscueClient
) -> None:
    good = {"X-API-KEY": discue.key}
    for number in range(9):
        fail(stranger.get("/v1/queues", headers={"X-API-KEY": f"bad-{number}"}), 401)
        ok(stranger.get("/v1/queues", headers=good))
    fail(stranger.get("/queues", headers={"X-API-KEY": "bad"}), 401)
    for path in ("/v1/queues", "/queues"):
        refused = stranger.get(path, headers={"X-API-KEY": "bad"})
        fail(refused, 403)
        assert 0 < int(refused.headers["retry-after"]) <= 300
        ok(stranger.get(path, headers=good))
        fail(stranger.get(path), 401)
    ok(discue.get("/queues"))
    with discue_http(server.url, local_address="127.0.0.77") as other:
        ok(other.get("/v1/queues", headers=good))


def test_requests_without_a_key_lock_nobody_out(
    stranger: httpx.Client, discue: DiscueClient
) -> None:
    for _ in range(20):
        fail(stranger.get("/v1/queues"), 401)
    ok(stranger.get("/v1/queues", headers={"X-API-KEY": discue.key}))


def wait_ms(lockout: Lockout, address: str, now_ms: int) -> int:
    """Show a bad key; how long the address is then told to wait."""
    try:
        lockout.failed(address, now_ms=now_ms)
    except LockedOut as error:
        return error.retry_after_ms
    return 0


def test_a_lock_out_takes_ten_failures_within_a_minute_and_lasts_five() -> None:
    lockout = Lockout()
    for number in range(10):
        assert not wait_ms(lockout, "a", 1_000 * number)
    assert wait_ms(lockout, "a", 9_000) == 300_000
    assert not wait_ms(lockout, "b", 9_000)
    assert wait_ms(lockout, "a", 9_000 + 299_999) == 1
    # Then counting starts over.
    for number in range(10):
        assert not wait_ms(lockout, "a", 9_000 + 300_000 + number)
    assert wait_ms(lockout, "a", 9_000 + 300_010)


def test_failures_more_than_a_minute_apart_lock_nobody_out() -> None:
    lockout = Lockout()
    for number in range(100):
        assert not wait_ms(lockout, "a", 7_000 * number)


def test_addresses_without_number_are_not_all_remembered() -> None:
    lockout = Lockout()
    for number in range(50_000):
        for _ in range(10 if number < 20_000 else 1):
            lockout.failed(str(number), now_ms=0)
    assert len(lockout._failures) <= 10_000
    assert len(lockout._until_ms) <= 10_000


# --- media types -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "text/x+json",
     "application/vnd.api+json;v=1", "application/merge-patch+json", ""],
)  # fmt: skip
def test_a_body_may_be_any_json(discue: DiscueClient, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    content = f'{{"name":"{new_name()}"}}'.encode()
    ok(discue.post("/queues", content=content, headers=headers))


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "text/json", "application/xml",
             "application/jsonp", "json", "multipart/form-data; boundary=x", "application/*"]
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_that_says_to_be_something_else_is_not_taken(
    discue: DiscueClient, standing: str, method: str, kind: str
) -> None:
    content = f'{{"name":"{new_name()}"}}'.encode()
    path = "/queues" if method == "POST" else f"/queues/{standing}"
    headers = {"Content-Type": kind}
    fail(discue.request(method, path, content=content, headers=headers), 415)


def test_no_body_needs_no_type(discue: DiscueClient, standing: str) -> None:
    headers = {"Content-Type": "text/plain", "Content-Length": "0"}
    ok(discue.put(f"/queues/{standing}", content=b"", headers=headers))
    ok(discue.get("/queues", headers={"Content-Type": "text/plain"}))


@pytest.mark.parametrize(
    ("accept", "good"),
    [
        (None, True),
        ("", True),
        ("*/*", True),
        ("application/*", True),
        ("application/json", True),
        ("APPLICATION/JSON; charset=utf-8", True),
        ("application/hal+json", True),
        ("text/html, */*;q=0.1", True),
        ("text/html, application/json;q=0.001", True),
        ("application/json, */*;q=0", True),
        ("text/html", False),
        ("text/*", False),
        ("application/xml, text/html;q=0.9", False),
        ("application/json;q=0", False),
        ("*/*; q=0.000", False),
        ("*/*, application/json;q=0.0", False),
        ("application/*;q=0, */*", False),
        ("nonsense", False),
    ],
)
def test_answers_are_json_for_whoever_takes_it(
    discue: DiscueClient, accept: str | None, good: bool
) -> None:
    headers = {"X-API-KEY": discue.key}
    request = discue.http.build_request("GET", "/v1/queues", headers=headers)
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    response = discue.http.send(request)
    if good:
        ok(response)
    else:
        fail(response, 406)


def test_nothing_is_done_for_whoever_takes_no_json(discue: DiscueClient) -> None:
    name = new_name()
    fail(discue.post("/queues", {"name": name}, headers={"Accept": "text/html"}), 406)
    assert name not in ok(discue.get("/queues"))["_links"]


# --- paths and methods -----------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["channels", "topics", "subscriptions"])
def test_resources_that_are_only_names_are_not_implemented(
    discue: DiscueClient, resource: str
) -> None:
    for prefix, method in product(("/v1", ""), ("GET", "POST", "PUT", "DELETE")):
        for path in (f"/{resource}", f"/{resource}/{UNKNOWN}"):
            fail(discue.under(prefix).request(method, path), 501)


def test_no_id_in_an_answer_has_an_underscore(discue: DiscueClient) -> None:
    for _ in range(20):
        queue = discue.new_queue()
        message = discue.add(queue, "x")
        for id in (queue, message):
            assert ID.fullmatch(id) and id[0].isalpha()
        text = discue.get(f"/queues/{queue}/messages").text + discue.get(f"/queues/{queue}").text
        assert "_" not in text.replace("_links", "").replace("created_at", "").replace(
            "updated_at", ""
        )


# --- pretty ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["?pretty", "?pretty=", "?pretty=1", "?pretty=true", "?pretty=True"]
)
def test_pretty_answers_differ_in_white_space_only(
    discue: DiscueClient, standing: str, value: str
) -> None:
    plain = discue.get(f"/queues/{standing}")
    pretty = discue.get(f"/queues/{standing}{value}")
    assert ok(plain) == ok(pretty)
    assert re.sub(r"\s", "", pretty.text) == plain.text
    assert '\n  "queue": {\n    "id"' in pretty.text
    assert "\n" not in plain.text
    assert plain.headers["etag"] == pretty.headers["etag"]


@pytest.mark.parametrize("value", ["?pretty=false", "?pretty=0", "?pretty=FALSE", ""])
def test_answers_that_need_not_be_pretty_have_no_white_space(
    discue: DiscueClient, standing: str, value: str
) -> None:
    assert "\n" not in discue.get(f"/queues/{standing}{value}").text


@pytest.mark.parametrize("value", ["yes", "2", "on", "tru", "%20"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_pretty_takes_nothing_else(
    discue: DiscueClient, queue: str, method: str, value: str
) -> None:
    fail(discue.request(method, f"/queues/{queue}?pretty={value}"), 400)
    ok(discue.get(f"/queues/{queue}"))


def test_errors_are_pretty_too(discue: DiscueClient, stranger: httpx.Client) -> None:
    for response, status in (
        (discue.get(f"/queues/{UNKNOWN}?pretty=true"), 404),
        (discue.get("/nothing?pretty"), 404),
        (discue.delete("/queues?pretty=1"), 405),
        (discue.post("/queues?pretty=true", {}), 422),
        (discue.get("/topics?pretty=true"), 501),
        (stranger.get("/v1/queues?pretty=true"), 401),
    ):
        fail(response, status)
        assert (
            f'{{\n  "title": "{response.json()["title"]}",\n  "status": {status}' in response.text
        )


# --- errors ----------------------------------------------------------------------------------


def test_every_refusal_has_an_id_of_its_own(discue: DiscueClient) -> None:
    ids = {fail(discue.get(f"/queues/{UNKNOWN}"), 404)["request_id"] for _ in range(5)}
    assert len(ids) == 5


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operator allows little: ten calls in five minutes, and three queues."""
    args = ("--api-rate-max", "10", "--queues-max", "3")
    server = Server(tmp_path_factory.mktemp("limited"), args=args).start()
    yield server
    server.stop()


def limited_client(server: Server, http: httpx.Client) -> DiscueClient:
    """With a key of its own, and so with all of its calls left."""
    headers = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    body = {"name": new_name(), "scopes": ["write"]}
    url = f"{server.url}/courier/v1/tenants/default/keys"
    made = httpx.post(url, json=body, headers=headers, trust_env=False, verify=False)
    return DiscueClient(http, made.raise_for_status().json()["token"])


def test_calls_over_the_limit_are_told_when_to_come_again(limited: Server) -> None:
    with discue_http(limited.url) as http:
        client = limited_client(limited, http)
        for number in range(10):
            path = "/queues" if number % 2 else f"/queues/{UNKNOWN}"
            response = client.get(path)
            assert response.status_code == (200 if number % 2 else 404)
            assert response.headers["x-ratelimit-limit"] == "2"
            left = int(response.headers["x-ratelimit-remaining"])
            assert left == min(2, 9 - number)
            whole_s = int(response.headers["x-ratelimit-reset"]) - time.time()
            assert 30 * number < whole_s < 30 * (number + 1) + 2
        response = client.get("/queues")
        fail(response, 429)
        assert 1 <= int(response.headers["retry-after"]) <= 31
        assert response.headers["x-ratelimit-remaining"] == "0"
        # Another key has calls left, and strangers are told nothing about limits.
        ok(limited_client(limited, http).get("/queues"))
        assert "x-ratelimit-limit" not in http.get("/v1/queues").headers


def test_without_a_limit_nothing_is_said_about_one(discue: DiscueClient) -> None:
    assert not [name for name in discue.get("/queues").headers if name.startswith("x-rate")]


def test_queues_over_the_operators_limit_are_to_be_paid_for(limited: Server) -> None:
    with discue_http(limited.url) as http:
        client = limited_client(limited, http)
        for _ in range(3):
            client.new_queue()
        fail(client.post("/queues", {"name": new_name()}), 402)
        assert len(ok(client.get("/queues"))["queues"]) == 3


# --- versions --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/queues", "/queues/$queue/messages", "/messages"])
def test_lists_have_versions_too(organization: DiscueClient, path: str) -> None:
    queue = organization.new_queue()
    path = path.replace("$queue", queue)
    version = organization.get(path).headers["etag"]
    assert organization.get(path, headers={"If-None-Match": version}).status_code == 304
    organization.add(queue, "x")
    organization.new_queue()
    ok(organization.get(path, headers={"If-None-Match": version}))


def test_of_many_who_change_the_same_version_one_succeeds(
    server: Server, discue: DiscueClient, queue: str
) -> None:
    path = f"/queues/{queue}"
    seen = discue.get(path).headers["etag"]

    def change(number: int) -> int:
        with discue_http(server.url) as http:
            client = DiscueClient(http, discue.key)
            body = {"name": new_name(f"by-{number}")}
            return client.put(path, body, headers={"If-Match": seen}).status_code

    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(change, range(12)))
    assert sorted(statuses) == [200, *[409] * 11]


# --- pages -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(new_organization: Callable[[], DiscueClient]) -> tuple[DiscueClient, list[str]]:
    """An organization with 25 queues, and their names, oldest first."""
    client = new_organization()
    names = [f"{number:02}-{new_name()}" for number in range(25)]
    for name in names:
        client.new_queue(name)
    return client, names


def listed(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["queues"]]


def test_without_parameters_everything_is_listed(many: tuple[DiscueClient, list[str]]) -> None:
    client, names = many
    answer = ok(client.get("/queues"))
    assert listed(answer) == names
    assert list(answer["_links"]) == ["self", *names]


@pytest.mark.parametrize(
    ("query", "start", "stop", "following"),
    [
        ("page=1", 0, 10, "page=2&per_page=10"),
        ("page=2", 10, 20, "page=3&per_page=10"),
        ("page=3", 20, 25, ""),
        ("page=4", 25, 25, ""),
        ("page=999999999", 25, 25, ""),
        ("per_page=5", 0, 5, "page=2&per_page=5"),
        ("per_page=25", 0, 25, ""),
        ("per_page=24", 0, 24, "page=2&per_page=24"),
        ("per_page=100", 0, 25, ""),
        ("per_page=100000", 0, 25, ""),
        ("page=2&per_page=1", 1, 2, "page=3&per_page=1"),
        ("page=1&page=2", 10, 20, "page=3&per_page=10"),
    ],
)
def test_pages_have_ten_items_or_as_many_as_asked_for(
    many: tuple[DiscueClient, list[str]], query: str, start: int, stop: int, following: str
) -> None:
    client, names = many
    answer = ok(client.get(f"/queues?{query}"))
    assert listed(answer) == names[start:stop]
    assert ("next" in answer["_links"]) == bool(following)
    if following:
        assert answer["_links"]["next"]["href"].endswith(f"/v1/queues?{following}")


def test_items_that_share_a_name_or_take_one_of_ours_are_linked_by_id(
    organization: DiscueClient,
) -> None:
    ids = {name: organization.new_queue(name) for name in ("self", "next", "other")}
    links = ok(organization.get("/queues"))["_links"]
    assert set(links) == {"self", ids["self"], ids["next"], "other"}
    assert links["self"]["href"].endswith("/v1/queues")
    assert links[ids["self"]]["href"].endswith(f"/v1/queues/{ids['self']}")
    queue = ids["other"]
    messages = [organization.add(queue, "x", name="same") for _ in range(2)]
    links = ok(organization.get(f"/queues/{queue}/messages"))["_links"]
    assert set(links) == {"self", "same", messages[1]}
    assert links["same"]["href"].endswith(messages[0])


def test_the_list_ends_after_a_thousand_and_says_where_it_goes_on(
    organization: DiscueClient,
) -> None:
    names = [f"n-{number:04}" for number in range(1_003)]
    for name in names:
        organization.new_queue(name)
    answer = ok(organization.get("/queues"))
    assert listed(answer) == names[:1_000]
    following = answer["_links"]["next"]["href"]
    rest = organization.http.get(following, headers={"X-API-KEY": organization.key})
    assert listed(ok(rest)) == names[1_000:]
    assert "next" not in ok(rest)["_links"]
