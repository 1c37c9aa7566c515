"""Signatures of pushes, by the Standard Webhooks convention.

A receiver that knows the secret can tell who sent a push, that nothing in it was changed, and
(by its timestamp) that it is not an old one sent again.
"""

import base64
import hmac
from collections.abc import Sequence
from hashlib import sha256

from courier import ids

SECRET_BYTES = 32
_PREFIX = "whsec_"


def new_secret() -> str:
    return _PREFIX + base64.b64encode(ids.new_bytes(SECRET_BYTES)).decode()


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
    return "v1," + base64.b64encode(hmac.digest(key, signed, sha256)).decode()
