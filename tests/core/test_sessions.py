"""Tokens: whose they are, how long they hold, and what ends them."""

import asyncio
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from courier.core import keys
from courier.core.errors import Unauthenticated
from courier.core.records import decided
from courier.core.sessions import SESSION_MS, SESSIONS_MAX
from courier.core.types import HOUR_MS, MINUTE_MS, Key, Session
from tests.core.desk import CALLER, TENANT, CoreDesk

Kind = Literal["token", "app", "connected_app", "user"]

KINDS: list[Kind] = ["app", "connected_app", "user"]


class Desk(CoreDesk):
    """Gives out and checks tokens, at the time of a clock that moves when told to."""

    def key(self, kind: Kind = "app", **fields: Any) -> Key:
        now_ms = self.clock.now_ms()
        key, _ = keys.new_key(
            tenant=TENANT, name="", grants=keys.grants(["read"]), now_ms=now_ms, kind=kind
        )
        key = replace(key, **fields)
        self.put(key)
        return key

    def open(self, key: Key) -> str:
        return self.run(self.admin.sessions.open(key, actor=CALLER))

    def rotate(self, key: Key, *, overlap_ms: int) -> Key:
        rotated, _ = self.run(
            self.admin.rotation.rotate(
                TENANT, key.id, overlap_ms=overlap_ms, finish=lambda key, _: key, actor=CALLER
            )
        )
        return rotated

    def holds(self, token: str) -> bool:
        """Whether the token is good now; this uses it."""
        try:
            self.run(self.admin.sessions.find(token))
        except Unauthenticated:
            return False
        return True

    def sessions(self, key: Key) -> list[Session]:
        return self.store.records.scan(Session, parent=key.id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_leads_to_its_key(desk: Desk, kind: Kind) -> None:
    key, other = desk.key(kind), desk.key(kind)
    for each in (key, other):
        assert desk.run(desk.admin.sessions.find(desk.open(each))) == each


# --- how long ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_holds_for_an_hour(desk: Desk, kind: Kind) -> None:
    key = desk.key(kind)
    token = desk.open(key)
    desk.clock.advance(HOUR_MS - 1)
    other = desk.key(kind)
    assert desk.open(other)
    desk.clock.advance(1)
    assert not desk.holds(token)
    assert SESSION_MS == HOUR_MS


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_holds_to_the_last_millisecond(desk: Desk, kind: Kind) -> None:
    token = desk.open(desk.key(kind))
    desk.clock.advance(HOUR_MS - 1)
    assert desk.holds(token)


def test_an_app_gets_the_same_token_while_it_is_valid(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    for _ in range(5):
        desk.clock.advance(10 * MINUTE_MS)
        assert desk.open(app) == token
    assert len(desk.sessions(app)) == 1


def test_an_apps_token_holds_for_an_hour_after_its_last_use(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    for _ in range(30):
        desk.clock.advance(HOUR_MS - 1)
        assert desk.holds(token)
    assert desk.open(app) == token
    desk.clock.advance(HOUR_MS)
    assert not desk.holds(token)
    assert not desk.holds(token)


def test_to_ask_for_the_token_is_to_use_it(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    for _ in range(3):
        desk.clock.advance(HOUR_MS - 1)
        assert desk.open(app) == token
    desk.clock.advance(HOUR_MS - 1)
    assert desk.holds(token)


def test_an_app_whose_token_is_over_gets_another(desk: Desk) -> None:
    app = desk.key()
    old = desk.open(app)
    desk.clock.advance(HOUR_MS)
    new = desk.open(app)
    assert new != old
    assert (desk.holds(old), desk.holds(new)) == (False, True)
    assert len(desk.sessions(app)) == 1


@pytest.mark.parametrize("kind", ["connected_app", "user"])
def test_other_tokens_are_new_each_time_and_use_does_not_prolong_them(
    desk: Desk, kind: Kind
) -> None:
    key = desk.key(kind)
    first = desk.open(key)
    desk.clock.advance(30 * MINUTE_MS)
    assert desk.holds(first)
    second = desk.open(key)
    assert second != first
    desk.clock.advance(30 * MINUTE_MS)
    assert (desk.holds(first), desk.holds(second)) == (False, True)
    desk.clock.advance(30 * MINUTE_MS)
    assert not desk.holds(second)


# --- what ends them ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_key_takes_its_tokens_along(desk: Desk, kind: Kind) -> None:
    key, other = desk.key(kind), desk.key(kind)
    token, others = desk.open(key), desk.open(other)
    desk.run(desk.admin.delete_key(TENANT, key.id, actor=CALLER))
    assert (desk.holds(token), desk.holds(others)) == (False, True)
    assert desk.sessions(key) == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_secret_at_once_ends_the_tokens_under_the_old_one(desk: Desk, kind: Kind) -> None:
    key = desk.key(kind)
    token = desk.open(key)
    renewed = desk.rotate(key, overlap_ms=0)
    assert not desk.holds(token)
    fresh = desk.open(renewed)
    assert fresh != token
    assert desk.holds(fresh)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_under_an_old_secret_end_with_it_however_often_they_are_used(
    desk: Desk, kind: Kind
) -> None:
    key = desk.key(kind)
    token = desk.open(key)
    renewed = desk.rotate(key, overlap_ms=10 * MINUTE_MS)
    until_ms = desk.clock.now_ms() + 10 * MINUTE_MS
    late = desk.run(desk.admin.sessions.open(renewed, until_ms=until_ms, actor=CALLER))
    fresh = desk.open(renewed)
    assert fresh not in (token, late)
    for _ in range(9):
        desk.clock.advance(MINUTE_MS)
        assert desk.holds(token) and desk.holds(late) and desk.holds(fresh)
    desk.clock.advance(MINUTE_MS)
    assert [desk.holds(each) for each in (token, late, fresh)] == [False, False, True]
    desk.restart()
    assert [desk.holds(each) for each in (token, late, fresh)] == [False, False, True]


def test_another_rotation_does_not_prolong_tokens_under_an_older_secret(desk: Desk) -> None:
    key = desk.key()
    token = desk.open(key)
    desk.rotate(key, overlap_ms=10 * MINUTE_MS)
    desk.rotate(key, overlap_ms=50 * MINUTE_MS)
    desk.clock.advance(10 * MINUTE_MS)
    assert not desk.holds(token)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disabled_or_expired_key_has_no_good_token(desk: Desk, kind: Kind) -> None:
    key = desk.key(kind)
    token = desk.open(key)
    for worse in (
        replace(key, enabled=False),
        replace(key, expires_ms=desk.clock.now_ms()),
    ):
        desk.put(worse)
        assert not desk.holds(token)
        desk.put(key)
        assert desk.holds(token)
    desk.put(replace(key, expires_ms=desk.clock.now_ms() + 1))
    assert desk.holds(token)


def test_what_is_no_token_leads_nowhere(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    [session] = desk.sessions(app)
    swapped = token[:-1] + ("A" if token[-1] != "A" else "B")
    wrong = [
        "", "x", "é" * 70, token[:-1], token + "x", token[1:], token.upper(), swapped, " " + token,
        session.id, app.id, token[:30], "0" * 30 + token[30:],
    ]  # fmt: skip
    for each in wrong:
        assert not desk.holds(each), each
    assert desk.holds(token)


def test_a_token_of_one_store_is_none_of_another(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    with asyncio.Runner() as runner:
        other = Desk(runner)
        other.put(app)
        records = desk.sessions(app)
        other.run(
            other.store.change(decided(puts=records), actor=CALLER, now_ms=other.clock.now_ms())
        )
        assert not other.holds(token)


# --- what is kept ---


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_survive_a_restart(desk: Desk, kind: Kind) -> None:
    key = desk.key(kind)
    token = desk.open(key)
    desk.restart()
    assert desk.holds(token)
    if kind == "app":
        assert desk.open(key) == token


def test_the_use_of_a_token_survives_a_restart(desk: Desk) -> None:
    """But for the few minutes in which it is not written down again."""
    app = desk.key()
    token = desk.open(app)
    desk.clock.advance(50 * MINUTE_MS)
    assert desk.holds(token)
    desk.restart()
    desk.clock.advance(54 * MINUTE_MS)
    assert desk.holds(token)


def test_that_a_token_was_given_out_again_survives_a_restart(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    desk.clock.advance(50 * MINUTE_MS)
    assert desk.open(app) == token
    desk.restart()
    desk.clock.advance(54 * MINUTE_MS)
    assert desk.holds(token)


def test_no_token_is_kept(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    [session] = desk.sessions(app)
    assert token not in repr(session)
    assert token[30:] not in repr(session)


def test_the_use_of_a_token_is_not_written_down_every_time(desk: Desk) -> None:
    app = desk.key()
    token = desk.open(app)
    before = desk.sessions(app)
    for _ in range(10):
        desk.clock.advance(10_000)
        assert desk.holds(token)
    assert desk.sessions(app) == before
    desk.clock.advance(10 * MINUTE_MS)
    assert desk.holds(token)
    assert desk.sessions(app) != before


def test_sessions_of_a_key_have_a_limit(desk: Desk) -> None:
    user = desk.key("user")
    tokens = []
    for _ in range(SESSIONS_MAX + 5):
        desk.clock.advance(1)
        tokens.append(desk.open(user))
    assert len(desk.sessions(user)) == SESSIONS_MAX
    assert [desk.holds(token) for token in tokens] == [False] * 5 + [True] * SESSIONS_MAX


def test_sessions_that_are_over_are_dropped(desk: Desk) -> None:
    user = desk.key("user")
    for _ in range(3):
        desk.open(user)
    desk.clock.advance(HOUR_MS)
    desk.open(user)
    assert len(desk.sessions(user)) == 1


def test_those_who_ask_at_the_same_time_get_the_same_token(desk: Desk) -> None:
    app = desk.key()

    async def ask() -> list[str]:
        return await asyncio.gather(
            *(desk.admin.sessions.open(app, actor=CALLER) for _ in range(20))
        )

    assert len(set(desk.run(ask()))) == 1
    assert len(desk.sessions(app)) == 1


def test_a_session_of_a_browser_lasts_while_it_is_used_and_a_week_at_most(desk: Desk) -> None:
    key = desk.key("token")
    sessions = desk.admin.browser_sessions
    token = desk.run(sessions.open(key, actor=CALLER))
    assert desk.run(sessions.open(key, actor=CALLER)) != token
    for _ in range(14):
        assert desk.run(sessions.find(token)).id == key.id
        desk.clock.advance(11 * HOUR_MS)
    desk.restart()
    assert desk.run(desk.admin.browser_sessions.find(token)).id == key.id
    desk.clock.advance(14 * HOUR_MS)
    with pytest.raises(Unauthenticated):
        desk.run(desk.admin.browser_sessions.find(token))


def test_a_session_of_a_browser_ends_12_hours_after_its_last_use(desk: Desk) -> None:
    token = desk.run(desk.admin.browser_sessions.open(desk.key("user"), actor=CALLER))
    desk.clock.advance(12 * HOUR_MS)
    with pytest.raises(Unauthenticated):
        desk.run(desk.admin.browser_sessions.find(token))


def test_a_token_for_one_purpose_is_no_token_for_another(desk: Desk) -> None:
    key = desk.key("user")
    browser = desk.run(desk.admin.browser_sessions.open(key, actor=CALLER))
    with pytest.raises(Unauthenticated):
        desk.run(desk.admin.sessions.find(browser))
    with pytest.raises(Unauthenticated):
        desk.run(desk.admin.browser_sessions.find(desk.open(key)))


def test_a_session_that_was_ended_is_over(desk: Desk) -> None:
    sessions = desk.admin.browser_sessions
    token = desk.run(sessions.open(desk.key("token"), actor=CALLER))
    desk.run(sessions.end(token, actor=CALLER))
    with pytest.raises(Unauthenticated):
        desk.run(sessions.find(token))
