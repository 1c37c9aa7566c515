"""Signatures of pushes, by the Standard Webhooks convention.

A receiver that knows the secret can tell who sent a push, that nothing in it was changed, and
(by its timestamp) that it is not an old one sent again.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence

from courier import ids
from courier.core.errors import InvalidRequest

SECRET_BYTES = 32
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
_PREFIX = "whsec_"


def new_secret() -> str:
    return _PREFIX + base64.b64encode(ids.new_bytes(SECRET_BYTES)).decode()


def checked(secret: str, field: str = "secret") -> str:
    """A secret of the owner's choice. Raises InvalidRequest, and does not repeat it."""
    try:
        raw = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    fits = SECRET_BYTES_MIN <= len(raw) <= SECRET_BYTES_MAX
    if not (fits and secret.startswith(_PREFIX)):
        size = f"{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
        raise InvalidRequest(field, f"must be {_PREFIX} and {size}")
    return secret


def headers(secrets: Sequence[str], *, id: str, at_ms: int, body: bytes) -> dict[str, str]:
    """The three headers of a signed push; with several secrets, one signature for each."""
    seconds = at_ms // 1000
    signed = b"%s.%d.%s" % (id.encode(), seconds, body)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
