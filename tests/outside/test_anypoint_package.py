"""The `anypoint` package from PyPI works unchanged, with only its base URL changed.

It reads: organizations, environments, destinations and their statistics. What it reads is put
there over HTTP, because the package itself writes nothing.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from anypoint import Anypoint
from anypoint.authentication import Authentication, Basic, OAuth2

from tests.clients.anypoint import environment_client
from tests.conformance.cross.anypoint import Anypoint as Writer
from tests.server import Server

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
ANOTHER_REGION = "eu-west-1"


class Sent(NamedTuple):
    """A request as it went over the wire."""

    method: str
    path: str
    query: dict[str, list[str]]
    status: int


@pytest.fixture
def writer(server: Server) -> Iterator[Writer]:
    account = server.credentials["anypoint"]
    with environment_client(account) as http:
        yield Writer(http, account)


@pytest.fixture
def login(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[Authentication], Anypoint]:
    """The package as its users set it up, for a server under another address."""
    monkeypatch.setenv("NO_PROXY", "*")
    return lambda authentication: Anypoint(authentication, base_url=server.url)


@pytest.fixture
def user(server: Server) -> Basic:
    return Basic(**server.credentials["anypoint"]["user"])


@pytest.fixture
def app(server: Server) -> OAuth2:
    return OAuth2(**server.credentials["anypoint"]["connected_app"])


@pytest.fixture
def client(login: Callable[[Authentication], Anypoint], user: Basic) -> Anypoint:
    return login(user)


@pytest.fixture
def place(writer: Writer) -> tuple[str, str, str]:
    """Organization, environment and region, as the package's calls take them."""
    account = writer.account
    return account["organization_id"], account["environment_id"], account["region"]


@pytest.fixture
def used(writer: Writer, queue_name: str) -> str:
    """A queue that got three messages; one was acked, one is locked, one waits."""
    writer.create(queue_name)
    for body in "abc":
        writer.publish(queue_name, body)
    first, _ = writer.get(queue_name, 2)
    writer.ack(queue_name, first)
    return queue_name


@pytest.fixture
def sent(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Sent]]:
    """What the package has sent since it was last asked, as its HTTP library notes it."""
    library = "urllib3.connectionpool"
    caplog.set_level(logging.DEBUG, logger=library)

    def take() -> list[Sent]:
        noted = [record for record in caplog.records if record.name == library]
        requests = []
        for record in noted:
            if isinstance(record.args, tuple) and len(record.args) == 8:
                _, _, _, method, target, _, status, _ = record.args
                parts = urlsplit(str(target))
                query = parse_qs(parts.query, keep_blank_values=True)
                requests.append(Sent(str(method), parts.path, query, int(str(status))))
        caplog.clear()
        return requests

    return take


# --- logging in ------------------------------------------------------------------------------


def test_a_user_logs_in_and_learns_who_it_is(client: Anypoint, writer: Writer) -> None:
    client.login()
    me = client.me()["user"]
    assert me["username"] == writer.account["user"]["username"]
    assert me["organization"]["id"] == writer.account["organization_id"]


def test_a_connected_app_logs_in_and_learns_whose_it_is(
    login: Callable[[Authentication], Anypoint], app: OAuth2, writer: Writer
) -> None:
    organization = login(app).organizations.get_organization()
    assert organization.id == writer.account["organization_id"]


def test_the_first_call_logs_in_by_itself_and_later_ones_do_not(
    client: Anypoint, sent: Callable[[], list[Sent]]
) -> None:
    client.me()
    client.me()
    assert [(each.method, each.path) for each in sent()] == [
        ("POST", "/accounts/login"),
        ("GET", "/accounts/api/me"),
        ("GET", "/accounts/api/me"),
    ]


@pytest.mark.parametrize("kind", ["user", "app"])
def test_wrong_secrets_are_refused(
    login: Callable[[Authentication], Anypoint], user: Basic, app: OAuth2, kind: str
) -> None:
    user.password = app.client_secret = "not the secret"
    with pytest.raises(Exception, match=r"\[401\].*Unauthorized"):
        login({"user": user, "app": app}[kind]).login()


def test_credentials_of_a_client_app_are_none_of_a_connected_app(
    login: Callable[[Authentication], Anypoint], writer: Writer
) -> None:
    account = writer.account
    with pytest.raises(Exception, match=r"\[401\]"):
        login(OAuth2(account["client_id"], account["client_secret"])).login()


# --- organizations and environments ----------------------------------------------------------


def own(environments: list[Any], writer: Writer) -> Any:
    """The first environment; tests may have made others in its organization."""
    [found] = [each for each in environments if each.id == writer.account["environment_id"]]
    return found


def test_organizations_and_environments_are_found_by_a_walk(
    client: Anypoint, writer: Writer
) -> None:
    organization = client.organizations.get_organization()
    assert (organization.id, organization.name) == (writer.account["organization_id"], "default")
    by_id = client.organizations.get_organization(organization.id)
    assert (by_id.id, by_id.name) == (organization.id, organization.name)
    environment = own(organization.get_environments(), writer)
    assert environment.organization_id == organization.id
    assert environment.client_id == writer.account["client_id"]
    assert environment.name == "default"


def test_destinations_and_statistics_are_found_from_an_environment(
    client: Anypoint, writer: Writer, used: str
) -> None:
    environment = own(client.organizations.get_organization().get_environments(), writer)
    region = writer.region
    assert used in {each.queue_id for each in environment.get_mq_destinations(region)}
    assert environment.get_mq_queue(region, used).messages == 1
    [current] = environment.get_mq_queues(region, [used])
    assert current["destination"] == used


# --- destinations ----------------------------------------------------------------------------


def test_destinations_are_listed_with_their_settings(
    client: Anypoint, writer: Writer, place: tuple[str, str, str], queue_name: str
) -> None:
    writer.create(f"{queue_name}-dead", fifo=True)
    writer.create(
        queue_name,
        defaultTtl=DAY_MS,
        defaultLockTtl=30_000,
        defaultDeliveryDelay=5_000,
        encrypted=True,
        fifo=True,
        deadLetterQueueId=f"{queue_name}-dead",
        maxDeliveries=7,
    )
    writer.create_exchange(f"{queue_name}-all")
    listed = [
        each
        for each in client.mq.get_destinations(*place)
        if (each.queue_id or each._data["exchangeId"]).startswith(queue_name)
    ]
    queue, exchange, dead = listed
    assert [each.type for each in listed] == ["queue", "exchange", "queue"]
    assert (queue.default_ttl, queue.default_lock_ttl) == (DAY_MS, 30_000)
    assert (queue.default_delivery_delay, queue.encrypted, queue.fifo) == (5_000, True, True)
    assert (queue.dead_letter_queue_id, queue.max_deliveries) == (f"{queue_name}-dead", 7)
    assert (dead.queue_id, dead.dead_letter_sources) == (f"{queue_name}-dead", [queue_name])
    assert (dead.default_ttl, dead.default_lock_ttl) == (7 * DAY_MS, 120_000)
    assert (dead.dead_letter_queue_id, dead.max_deliveries) == (None, None)
    assert (exchange.queue_id, exchange.encrypted) == (None, False)


def test_all_destinations_come_though_the_package_never_asks_for_a_page(
    client: Anypoint,
    writer: Writer,
    place: tuple[str, str, str],
    queue_name: str,
    sent: Callable[[], list[Sent]],
) -> None:
    names = {f"{queue_name}-{number}" for number in range(25)}
    for name in names:
        writer.create(name)
    assert names <= {each.queue_id for each in client.mq.get_destinations(*place)}
    assert sent()[-1].query == {}


def test_a_region_lists_its_own_destinations_only(
    client: Anypoint, writer: Writer, place: tuple[str, str, str], queue_name: str
) -> None:
    writer.elsewhere(ANOTHER_REGION).create(queue_name)
    assert queue_name not in {each.queue_id for each in client.mq.get_destinations(*place)}
    there = client.mq.get_destinations(*place[:2], ANOTHER_REGION)
    assert queue_name in {each.queue_id for each in there}
    assert {each.region_id for each in there} == {ANOTHER_REGION}


def test_an_empty_region_lists_nothing(client: Anypoint, place: tuple[str, str, str]) -> None:
    assert client.mq.get_destinations(*place[:2], "us-gov-west-1") == []


def test_an_environment_of_someone_else_is_refused(
    client: Anypoint, place: tuple[str, str, str]
) -> None:
    nobody = "01234567-89ab-cdef-0123-456789abcdef"
    with pytest.raises(Exception, match=r"\[403\]"):
        client.mq.get_destinations(place[0], nobody, place[2])


# --- statistics ------------------------------------------------------------------------------


def test_current_numbers_are_told_in_the_order_asked(
    client: Anypoint,
    writer: Writer,
    place: tuple[str, str, str],
    used: str,
    sent: Callable[[], list[Sent]],
) -> None:
    writer.create(f"{used}-empty")
    asked = [f"{used}-empty", f"{used}-unknown", used]
    assert client.mq.get_queues(*place, asked) == [
        {"destination": f"{used}-empty", "messages": 0, "inflightMessages": 0},
        {"destination": used, "messages": 1, "inflightMessages": 1},
    ]
    assert sent()[-1].query == {"destinationIds": [",".join(asked)]}


def test_current_numbers_of_no_queue_in_particular_are_refused(
    client: Anypoint, place: tuple[str, str, str]
) -> None:
    with pytest.raises(Exception, match=r"\[400\].*destinationIds"):
        client.mq.get_queues(*place, [])


def numbers(queue: Any) -> dict[str, int]:
    return {name: value for name, value in vars(queue).items() if name != "destination"}


USED = {
    "messages": 1,
    "inflight_messages": 1,
    "messages_visible": 1,
    "messages_sent": 3,
    "messages_received": 2,
    "messages_acked": 1,
}


def test_without_dates_the_last_day_is_told(
    client: Anypoint,
    place: tuple[str, str, str],
    used: str,
    sent: Callable[[], list[Sent]],
) -> None:
    queue = client.mq.get_queue(*place, used)
    assert queue.destination == used
    assert numbers(queue) == USED
    assert sent()[-1].query == {"period": ["86400"]}


@pytest.mark.parametrize("zone, ending", [(UTC, " UTC"), (None, " ")])
def test_dates_are_understood_with_and_without_a_zone(
    client: Anypoint,
    place: tuple[str, str, str],
    used: str,
    zone: timezone | None,
    ending: str,
    sent: Callable[[], list[Sent]],
) -> None:
    end = datetime.now(UTC).replace(tzinfo=zone, microsecond=0) + timedelta(minutes=1)
    start = end - timedelta(hours=1)
    assert numbers(client.mq.get_queue(*place, used, start, end)) == USED
    asked = sent()[-1]
    assert asked.query == {
        "startDate": [f"{start:%a, %d %b %Y %H:%M:%S}{ending}"],
        "endDate": [f"{end:%a, %d %b %Y %H:%M:%S}{ending}"],
        "period": ["86400"],
    }


def test_nothing_happened_before_the_queue_was_there(
    client: Anypoint, place: tuple[str, str, str], used: str
) -> None:
    end = datetime.now(UTC) - timedelta(hours=2)
    queue = client.mq.get_queue(*place, used, end - timedelta(hours=1), end)
    assert numbers(queue) == dict.fromkeys(USED, 0)


def test_dates_of_another_zone_are_refused_rather_than_misread(
    client: Anypoint, place: tuple[str, str, str], used: str
) -> None:
    east = timezone(timedelta(hours=2))
    end = datetime.now(east) + timedelta(minutes=1)
    try:
        queue = client.mq.get_queue(*place, used, end - timedelta(hours=1), end)
    except Exception as refused:
        assert "[400]" in str(refused)
    else:
        assert numbers(queue) == USED


def test_a_destination_tells_its_own_statistics(
    client: Anypoint, place: tuple[str, str, str], used: str
) -> None:
    [destination] = [each for each in client.mq.get_destinations(*place) if each.queue_id == used]
    assert numbers(destination.get_queue()) == USED


def test_statistics_of_an_unknown_queue_are_refused(
    client: Anypoint, place: tuple[str, str, str], queue_name: str
) -> None:
    with pytest.raises(Exception, match=r"\[404\].*queue not found"):
        client.mq.get_queue(*place, queue_name)
