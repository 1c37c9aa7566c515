"""Another secret for a key: which secrets work, and until when."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from courier.core import journal, keys
from courier.core.errors import NotFound, Unauthenticated
from courier.core.keys import RETIRED_MAX
from courier.core.types import HOUR_MS, Key
from tests.core.desk import CALLER, TENANT, CoreDesk


class Desk(CoreDesk):
    """Gives out secrets and checks them, at the time of a clock that moves when told to."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.ring = keys.Keyring(self.store.records)
        self.key, self.secret = self.run(
            self.admin.create_key(
                tenant=TENANT, name="k", grants=keys.grants(["read"]), actor=CALLER
            )
        )

    def rotate(self, overlap_ms: int, tenant: str = TENANT) -> str:
        key, secret = self.run(
            self.admin.rotation.rotate(
                tenant, self.key.id, overlap_ms=overlap_ms, finish=lambda key, _: key, actor=CALLER
            )
        )
        assert key.id == self.key.id
        return secret

    def why(self, secret: str) -> str:
        """Why the secret is refused; "": it is not."""
        try:
            self.run(self.ring.find(secret, now_ms=self.clock.now_ms()))
        except Unauthenticated as refused:
            assert refused.why == "unknown", "the caller is told the same for every reason"
            return refused.signin
        return ""

    def change(self, **fields: Any) -> None:
        key = self.store.records.get(Key, self.key.id)
        assert key is not None
        self.put(replace(key, **fields))


def test_the_old_secret_works_until_the_overlap_is_over(desk: Desk) -> None:
    new = desk.rotate(HOUR_MS)
    desk.clock.advance(HOUR_MS - 1)
    assert [desk.why(each) for each in (desk.secret, new)] == ["", ""]
    desk.clock.advance(1)
    assert [desk.why(each) for each in (desk.secret, new)] == ["expired_secret", ""]


def test_without_an_overlap_every_old_secret_ends_at_once(desk: Desk) -> None:
    second = desk.rotate(HOUR_MS)
    assert desk.why(desk.secret) == ""
    third = desk.rotate(0)
    assert [desk.why(each) for each in (desk.secret, second)] == ["wrong_secret"] * 2
    assert desk.why(third) == ""


def test_each_of_several_old_secrets_keeps_its_time(desk: Desk) -> None:
    second = desk.rotate(HOUR_MS)
    third = desk.rotate(2 * HOUR_MS)
    desk.clock.advance(HOUR_MS)
    assert [desk.why(each) == "" for each in (desk.secret, second, third)] == [False, True, True]
    desk.clock.advance(HOUR_MS)
    assert [desk.why(each) == "" for each in (desk.secret, second, third)] == [False, False, True]


def test_there_is_a_limit_to_old_secrets(desk: Desk) -> None:
    made = [desk.secret, *(desk.rotate(HOUR_MS) for _ in range(RETIRED_MAX + 1))]
    assert [desk.why(each) for each in made] == ["wrong_secret", *[""] * (RETIRED_MAX + 1)]


def test_a_deleted_key_has_no_good_secret(desk: Desk) -> None:
    made = [desk.secret, desk.rotate(HOUR_MS)]
    desk.run(desk.admin.delete_key(TENANT, desk.key.id, actor=CALLER))
    assert [desk.why(each) for each in made] == ["unknown_key"] * 2


def test_a_disabled_or_expired_key_has_no_good_secret(desk: Desk) -> None:
    made = [desk.secret, desk.rotate(HOUR_MS)]
    desk.change(enabled=False)
    assert [desk.why(each) for each in made] == ["disabled"] * 2
    desk.change(enabled=True, expires_ms=desk.clock.now_ms())
    assert [desk.why(each) for each in made] == ["expired"] * 2


def test_nobody_rotates_the_key_of_another_tenant(desk: Desk) -> None:
    with pytest.raises(NotFound):
        desk.rotate(HOUR_MS, tenant="c0" + "8" * 30)
    assert desk.why(desk.secret) == ""


def test_the_journal_has_no_digest_of_a_secret(desk: Desk) -> None:
    desk.rotate(HOUR_MS)
    key = desk.store.records.get(Key, desk.key.id)
    assert key is not None and key.retired
    runs = desk.run(desk.store.journal.read(after=0, limit=100))
    told = str(list(journal.events(runs, after=0, limit=100)))
    assert "key_updated" in told
    for digest in (key.digest, key.retired[0].digest):
        assert digest not in told
