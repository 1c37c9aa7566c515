"""What holds for everything that has a name, an id and a page of its own: once, over all kinds."""

import re
from typing import Any, NamedTuple

import pytest

from tests.clients.discue import ID, DiscueClient, fail, new_name, ok, pointers
from tests.wire.discue.receiving import NOWHERE

UNKNOWN = "AAAAAAAAAAAAAAAAAAAAA"


class Kind(NamedTuple):
    """`path` is below a queue where it says so; `body` is what a new one needs beside its name."""

    plural: str
    path: str
    member: str
    body: dict[str, Any]

    def place(self, client: DiscueClient) -> str:
        """Where a test makes some: on a queue of its own, if they are a queue's."""
        return (
            self.path.replace("$queue", client.new_queue()) if "$queue" in self.path else self.path
        )

    def make(self, client: DiscueClient, place: str, **members: Any) -> dict[str, Any]:
        """A new one, as it is read afterwards."""
        if not members.keys() & {"name", "alias"}:
            members["name"] = new_name("r")
        made = ok(client.post(place, {**self.body, **members}))
        id = made["id"] if "id" in made else made[self.member]["id"]
        assert ID.fullmatch(id)
        assert made["_links"]["self"]["href"].endswith(f"/v1{place}/{id}")
        return self.read(client, f"{place}/{id}")

    def read(self, client: DiscueClient, path: str) -> dict[str, Any]:
        found: dict[str, Any] = ok(client.get(path))[self.member]
        return found

    def listed(self, client: DiscueClient, place: str) -> list[str]:
        return [each["id"] for each in ok(client.get(place))[self.plural]]


QUEUES = Kind("queues", "/queues", "queue", {})
MESSAGES = Kind("messages", "/queues/$queue/messages", "message", {"data": "x"})
LISTENERS = Kind(
    "listeners",
    "/queues/$queue/listeners",
    "listener",
    {"notify_url": NOWHERE, "liveness_url": NOWHERE, "status": "disabled"},
)
KEYS = Kind("api_keys", "/api_keys", "api_key", {})
DOMAINS = Kind("domains", "/domains", "domain", {"hostname": "app.example", "port": 443})
KINDS = (QUEUES, MESSAGES, LISTENERS, KEYS, DOMAINS)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
# Of messages several may have the same name.
UNIQUE = [kind for kind in KINDS if kind is not MESSAGES]

NO_NAMES = [
    *("", "abc", "a" * 65, "-abcd", ".abcd", "_abcd", "/abcd", "ab cd", "abcd ", " abcd", "abcd\n"),
    *("ab\\cd", "abcdé", "ab:cd", "ab%20cd", "ab\x00cd", "١٢٣٤"),
]
NAMES = ["abcd", "9abc", "A" * 64, "a._-", "a/b/c", "myapp.io/deletion-request-queue", "a..."]


@each_kind
@pytest.mark.parametrize("word", ["name", "alias"])
def test_what_is_no_name_is_refused(organization: DiscueClient, kind: Kind, word: str) -> None:
    place = kind.place(organization)
    made = kind.make(organization, place)
    known = kind.listed(organization, place)
    for name in NO_NAMES:
        assert pointers(organization.post(place, {**kind.body, word: name})) == [f"/{word}"], name
        assert pointers(organization.put(f"{place}/{made['id']}", {word: name})) == [f"/{word}"], (
            name
        )
    assert kind.listed(organization, place) == known
    assert kind.read(organization, f"{place}/{made['id']}") == made


@each_kind
def test_names_of_both_alphabets_are_taken(organization: DiscueClient, kind: Kind) -> None:
    place = kind.place(organization)
    for name in NAMES:
        for word in ("name", "alias"):
            made = kind.make(organization, place, **{word: name})
            assert made["name"] == made["alias"] == name
            ok(organization.delete(f"{place}/{made['id']}"))


@each_kind
def test_name_and_alias_must_agree(discue: DiscueClient, kind: Kind) -> None:
    place, name = kind.place(discue), new_name("r")
    made = kind.make(discue, place, name=name, alias=name)
    other = {"name": name, "alias": new_name("r")}
    assert pointers(discue.post(place, {**kind.body, **other})) == ["/alias"]
    assert pointers(discue.put(f"{place}/{made['id']}", other)) == ["/alias"]
    assert kind.read(discue, f"{place}/{made['id']}") == made


@pytest.mark.parametrize("kind", [QUEUES, LISTENERS, DOMAINS], ids=lambda kind: kind.plural)
def test_a_new_one_needs_its_members(organization: DiscueClient, kind: Kind) -> None:
    place = kind.place(organization)
    known = kind.listed(organization, place)
    whole = {**kind.body, "name": new_name("r")}
    for member in whole.keys() - {"status"}:
        body = {name: value for name, value in whole.items() if name != member}
        assert pointers(organization.post(place, body)) == [f"/{member}"]
    assert kind.listed(organization, place) == known


@pytest.mark.parametrize("kind", UNIQUE, ids=lambda kind: kind.plural)
@pytest.mark.parametrize("word", ["name", "alias"])
def test_a_name_is_taken_once(
    discue: DiscueClient, neighbour: DiscueClient, kind: Kind, word: str
) -> None:
    place, name = kind.place(discue), new_name("r")
    first, second = kind.make(discue, place, name=name), kind.make(discue, place)
    assert pointers(discue.post(place, {**kind.body, word: name})) == ["/name"]
    fail(discue.put(f"{place}/{second['id']}", {word: name}), 422)
    assert kind.read(discue, f"{place}/{second['id']}") == second
    ok(discue.put(f"{place}/{first['id']}", {word: name}))
    kind.make(neighbour, kind.place(neighbour), name=name)
    if kind is LISTENERS:
        kind.make(discue, kind.place(discue), name=name)
    ok(discue.delete(f"{place}/{first['id']}"))
    ok(discue.put(f"{place}/{second['id']}", {word: name}))


@each_kind
def test_a_list_has_the_oldest_first_a_link_to_each_and_pages(
    organization: DiscueClient, kind: Kind
) -> None:
    place = kind.place(organization)
    known = kind.listed(organization, place)
    made = [kind.make(organization, place) for _ in range(12)]
    answer = ok(organization.get(place))
    ids = [each["id"] for each in answer[kind.plural]]
    assert ids == [*known, *(each["id"] for each in made)]
    assert list(answer["_links"])[-12:] == [each["name"] for each in made]
    for each in made:
        assert answer["_links"][each["name"]]["href"].endswith(f"/v1{place}/{each['id']}")
    page = ok(organization.get(f"{place}?page=1"))
    assert [each["id"] for each in page[kind.plural]] == ids[:10]
    following = organization.http.get(
        page["_links"]["next"]["href"], headers={"X-API-KEY": organization.key}
    )
    assert [each["id"] for each in ok(following)[kind.plural]] == ids[10:]
    assert "next" not in ok(following)["_links"]
    for query in ("page=0", "per_page=0", "page=", "page=x"):
        fail(organization.get(f"{place}?{query}"), 400)


@each_kind
def test_an_answer_that_is_known_already_is_not_sent_again(
    discue: DiscueClient, kind: Kind
) -> None:
    place = kind.place(discue)
    path = f"{place}/{kind.make(discue, place)['id']}"
    version = discue.get(path).headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]+"', version)
    for header in (version, f"W/{version}", f'"other", {version}', "*"):
        response = discue.get(path, headers={"If-None-Match": header})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == version
    ok(discue.get(path, headers={"If-None-Match": '"other"'}))
    ok(discue.put(path, {"name": new_name("r")}))
    changed = discue.get(path, headers={"If-None-Match": version})
    ok(changed)
    assert changed.headers["etag"] != version


@each_kind
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_only_the_version_that_was_seen_is_changed(
    discue: DiscueClient, kind: Kind, method: str
) -> None:
    place = kind.place(discue)
    path = f"{place}/{kind.make(discue, place)['id']}"
    seen = discue.get(path).headers["etag"]
    name = new_name("r")
    ok(discue.put(path, {"name": name}))
    body = {"name": new_name("r")} if method == "PUT" else None
    fail(discue.request(method, path, body, headers={"If-Match": seen}), 409)
    fail(discue.request(method, path, body, headers={"If-Match": '"x", "y"'}), 409)
    assert kind.read(discue, path)["name"] == name
    seen = discue.get(path).headers["etag"]
    ok(discue.request(method, path, body, headers={"If-Match": f'"x", {seen}'}))
    if method == "PUT":
        ok(discue.put(path, body, headers={"If-Match": "*"}))
    fail(discue.put(f"{place}/{UNKNOWN}", {"name": "some"}, headers={"If-Match": "*"}), 404)


@each_kind
def test_what_is_deleted_is_gone(organization: DiscueClient, kind: Kind) -> None:
    place = kind.place(organization)
    kept, gone = kind.make(organization, place), kind.make(organization, place)
    path = f"{place}/{gone['id']}"
    answer = ok(organization.delete(path))
    assert list(answer) == ["_links"]
    assert answer["_links"]["self"]["href"].endswith(f"/v1{place}")
    for method, body in (("GET", None), ("PUT", {"name": new_name("r")}), ("DELETE", None)):
        fail(organization.request(method, path, body), 404)
    assert gone["id"] not in kind.listed(organization, place)
    assert kind.read(organization, f"{place}/{kept['id']}") == kept


@pytest.mark.parametrize("kind", [MESSAGES, LISTENERS], ids=lambda kind: kind.plural)
def test_what_is_a_queues_is_found_there_only(discue: DiscueClient, kind: Kind) -> None:
    place, other = kind.place(discue), kind.place(discue)
    made = kind.make(discue, place)
    for method, body in (("GET", None), ("PUT", {"name": new_name("r")}), ("DELETE", None)):
        fail(discue.request(method, f"{other}/{made['id']}", body), 404)
    assert kind.read(discue, f"{place}/{made['id']}") == made


@each_kind
def test_members_nobody_knows_are_ignored(discue: DiscueClient, kind: Kind) -> None:
    body = {"id": UNKNOWN, "unknown": [1], "_links": {}, **kind.body, "name": new_name("r")}
    place = kind.place(discue)
    made = kind.make(discue, place, **body)
    assert made["id"] != UNKNOWN and "unknown" not in made
