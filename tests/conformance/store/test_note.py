"""Events that are no change."""

from courier.core.records import decided
from courier.core.types import Actor, Note
from tests.conformance.store.driver import TENANT, Driver


def test_a_note_is_an_event_of_its_tenant_and_counted(driver: Driver) -> None:
    before = driver.last()
    detail = {"reason": "expired", "count": 3}
    driver.run(
        driver.store.journal.note(
            [
                Note("signin_failed", TENANT, Actor("key", "discue", "192.0.2.1"), detail),
                Note("signin_failed", "", Actor("", "courier"), detail),
            ],
            now_ms=driver.now_ms,
        )
    )
    events = driver.events(after=before)
    assert [(event["tenant"], event["actor"], event["dialect"]) for event in events] == [
        (TENANT, "key", "discue"),
        ("", "", "courier"),
    ]
    assert all(event["kind"] == "signin_failed" for event in events)
    assert all(event["detail"] == detail for event in events)
    assert [event["offset"] for event in events] == [before + 1, before + 2]
    assert [tally.count for tally in driver.tallies(TENANT) if tally.kind == "signin_failed"] == [1]


def test_a_change_of_settings_tells_the_address_it_came_from(driver: Driver) -> None:
    queue = driver.queue()
    before = driver.last()
    for actor in (Actor("key", "test", "192.0.2.1"), Actor("key", "test")):
        driver.run(driver.store.change(decided(puts=[queue]), actor=actor, now_ms=driver.now_ms))
    told = [event["detail"].get("address") for event in driver.events(after=before)]
    assert told == ["192.0.2.1", None]
