"""Signatures, read by the library that receivers use."""

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from courier.delivery import secrets

BODIES = [
    b"",
    b"{}",
    b'{"user": "481512342"}',
    "ümläut € 🦆".encode(),
    b" \r\n\t\x00 ",
    b"." * 99_999,
]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def check(secret: str, body: bytes, headers: dict[str, str]) -> None:
    Webhook(secret).verify(body, headers, json_parse=False)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_stock_library_verifies_a_push(body: bytes) -> None:
    secret = secrets.new_secret()
    headers = secrets.headers([secret], id="m-1", at_ms=now_ms(), body=body)
    check(secret, body, headers)


def test_a_stock_library_makes_the_same_signature() -> None:
    """Not only what it accepts: the very bytes."""
    secret = secrets.new_secret()
    headers = secrets.headers([secret], id="m-1", at_ms=1_700_000_000_999, body=b"body")
    at = datetime.fromtimestamp(1_700_000_000, tz=UTC)
    assert headers == {
        "webhook-id": "m-1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": Webhook(secret).sign("m-1", at, "body"),
    }


def test_with_two_secrets_whoever_has_one_of_them_can_verify() -> None:
    old, new, other = (secrets.new_secret() for _ in range(3))
    headers = secrets.headers([new, old], id="m-1", at_ms=now_ms(), body=b"{}")
    assert len(headers["webhook-signature"].split(" ")) == 2
    check(old, b"{}", headers)
    check(new, b"{}", headers)
    with pytest.raises(WebhookVerificationError):
        check(other, b"{}", headers)


@pytest.mark.parametrize("change", ["body", "webhook-id", "webhook-timestamp"])
def test_whatever_is_changed_on_the_way_is_noticed(change: str) -> None:
    secret = secrets.new_secret()
    headers = secrets.headers([secret], id="m-1", at_ms=now_ms(), body=b"body")
    body = b"body"
    if change == "body":
        body = b"Body"
    elif change == "webhook-id":
        headers[change] = "m-2"
    else:
        headers[change] = str(int(headers[change]) - 1)
    with pytest.raises(WebhookVerificationError):
        check(secret, body, headers)


def test_an_old_push_sent_again_is_noticed() -> None:
    secret = secrets.new_secret()
    headers = secrets.headers([secret], id="m-1", at_ms=now_ms() - 600_000, body=b"body")
    with pytest.raises(WebhookVerificationError, match="too old"):
        check(secret, b"body", headers)


def test_a_secret_is_32_random_bytes_behind_its_prefix() -> None:
    made = {secrets.new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert secret.startswith("whsec_")
        assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
