"""What each site publishes of itself: whole, and true to the server that publishes it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from tests.attack.description import Attack, table
from tests.attack.every.aim import Aim, aims_of
from tests.conformance.reach.conftest import started
from tests.conformance.reach.world import Side, World

PARAMETER = re.compile(r"{(\w+)}")
REFERENCE = re.compile(r'"\$ref": ?"#/components/schemas/([^"]+)"')
SIDES = 6
# What would take everything away aims at nobody.
NOBODY = {
    name: "00000000-0000-4000-8000-000000000000" for name in ("organizationId", "environmentId")
}
WHOLE = ("clear_environment", "clear_organization", "delete_tenant")
# These wait for what never comes, speak to somebody else, or read what schemathesis cannot write.
LEFT_OUT = ("get_metrics", "metrics", "test_listener", "publish_rows")
# An attack is worth nothing when it does not get past the door: these succeed with made-up bodies.
MUST_SUCCEED = {
    *("create_queue", "list_queues", "push", "push_batch", "pull", "ack", "peek"),
    *("purge_refs", "list_subscriptions", "get_queue", "get", "publish", "publish_batch"),
    *("ack_batch", "nack_batch", "extend_batch", "put_queue", "patch_queue", "patch_queue_v2"),
    *("delete_queue", "list_destinations", "put_exchange", "patch_exchange", "put_binding"),
    *("delete_rules", "create_client", "renew_client", "delete_client", "current", "me"),
    *("environments", "update_queue", "get_schema", "update_listener", "rotate_secret"),
    *("backfill", "add_message", "get_message", "update_key", "get_domain", "get_key"),
    *("list_events", "message_stats", "delete_message", "delete_listener", "list_tenants"),
    *("list_keys", "list_listeners", "journal_head", "list_pipelines", "list_workers"),
    "freeze",
}
# A schema cannot say that one of `name` and `alias` must be there, or whose lock it is; and clients
# are for the operator.
UNLIKELY = frozenset({("discue", "create_queue"), ("discue", "create_client"), ("anypoint", "ack")})
HOMES: dict[str, list[Aim]] = {}
for _aim in aims_of():
    if _aim.route.operation not in ("openapi", "docs", "front") and _aim.route.described:
        home = f"{_aim.site.prefix}{getattr(_aim.site, 'docs_path', '')}"
        HOMES.setdefault(home, []).append(_aim)
each_home = pytest.mark.parametrize("home", HOMES)
# Of its own: what is made up here may have a name that others take for nobody's.
world = pytest.fixture(scope="module", name="world")(started)


def document(world: World, home: str) -> dict[str, Any]:
    answer = world.http.get(f"{home}/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in described["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


@each_home
def test_a_description_is_valid_and_names_every_route(world: World, home: str) -> None:
    described = document(world, home)
    jsonschema_rs.validator_for(OPENAPI_31).validate(described)
    routes = {(aim.route.method, aim.site.prefix + aim.route.path) for aim in HOMES[home]}
    assert {(method, path) for method, path, _ in operations(described)} == routes
    names = [operation["operationId"] for _, _, operation in operations(described)]
    assert len(set(names)) == len(names)
    keyed = {aim.route.operation: aim.route.scope is not None for aim in HOMES[home]}
    statuses = {aim.route.operation: str(aim.route.status) for aim in HOMES[home]}
    for _, path, operation in operations(described):
        within = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert within == PARAMETER.findall(path)
        if operation["operationId"] in keyed:
            assert ("security" in operation) == keyed[operation["operationId"]]
            assert statuses[operation["operationId"]] in operation["responses"]
    text = world.http.get(f"{home}/openapi.json").text
    for name in REFERENCE.findall(text):
        assert name in described["components"]["schemas"]
    for schema in described["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


@each_home
def test_a_description_can_be_read_as_a_page(world: World, home: str) -> None:
    page = world.http.get(f"{home}/docs")
    assert page.headers["content-type"].startswith("text/html")
    for aim in HOMES[home]:
        assert f"<code>{aim.site.prefix}{aim.route.path}</code>" in page.text


@pytest.fixture
def sides(world: World) -> list[Side]:
    return [world.side(f"described-{number}") for number in range(SIDES)]


def ids(aim: Aim, side: Side) -> dict[str, Any]:
    return {f"path.{name}": value for name, value in side.params[aim.site.name].items()}


def aimed(home: str, sides: list[Side], *, drawn: bool) -> str:
    """Real ids in the place of made-up ones; what takes something away has a side of its own."""
    first = HOMES[home][0]
    values = [ids(first, side) for side in sides]
    tables = [table("parameters", values[0])]
    if drawn:
        named = {name.removeprefix("path."): [each[name] for each in values] for name in values[0]}
        lists = {name: {"values": each} for name, each in named.items()}
        bound = {f"path.{name}": {"dictionary": name, "probability": 0.8} for name in named}
        kept = ("account_id", "organizationId", "environmentId", "regionId", "tenant")
        bound |= {f"path.{name}": values[0][f"path.{name}"] for name in kept if name in named}
        tables = [table("dictionaries", lists), table("parameters", bound)]
    tables[-1] += '\n"query.pollingTime" = 0\n"query.lockTtl" = 60000'
    number = 0
    for aim in HOMES[home]:
        name = (
            f'[[operations]]\ninclude-name = "{aim.route.method} {aim.site.prefix}{aim.route.path}"'
        )
        if aim.route.operation in LEFT_OUT:
            tables.append(f"{name}\nenabled = false")
        elif aim.route.operation in WHOLE:
            nobody = {f"path.{key}": value for key, value in NOBODY.items()}
            tables += [name, table("operations.parameters", {**nobody, "path.tenant": "nobody"})]
        elif aim.route.operation == "put_fallback":
            checks = {"not_a_server_error": {"expected-statuses": ["2xx", "4xx", "501"]}}
            tables += [name, table("operations.checks", checks)]
        elif not drawn and (aim.route.method == "DELETE" or aim.route.operation == "freeze"):
            number = number % (SIDES - 1) + 1
            tables += [name, table("operations.parameters", values[number])]
    return "\n".join(tables)


@pytest.mark.parametrize(("phases", "examples"), [("examples,coverage", 1), ("fuzzing", 25)])
@each_home
def test_every_request_is_answered_as_the_description_says(
    world: World, sides: list[Side], tmp_path: Path, home: str, phases: str, examples: int
) -> None:
    headers = HOMES[home][0].headers(world)
    if home == "/courier/v1":
        headers = {"Authorization": f"Bearer {world.server.credentials['admin']['token']}"}
    text = aimed(home, sides, drawn=phases == "fuzzing")
    attack = Attack(world.server, f"{home}/openapi.json", headers, text)
    seen = attack.run(tmp_path, phases=phases, examples=examples)
    for aim in HOMES[home] if phases != "fuzzing" else ():
        known = (aim.site.name, aim.route.operation)
        if aim.route.operation in MUST_SUCCEED and known not in UNLIKELY:
            path = PARAMETER.sub("[^/]+", aim.site.prefix + aim.route.path)
            found = seen.statuses(aim.route.method, path)
            assert {aim.route.status, *aim.route.others} & found, (str(aim), found)
