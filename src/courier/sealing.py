"""Encryption of what must not lie in clear on disk: AES-256-GCM under the operator's keys."""

import base64
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from courier import files, ids
from courier.core.errors import StoreUnavailable

KEY_BYTES = 32
_NONCE_BYTES = 12
_NAME_DIGITS = 16
# Behind the name of a key: what it sealed is bound to its place. Older values are not.
_BOUND = ".2"


class BadKey(Exception):
    """A key cannot be used; the message is one sentence for the operator."""


class KeySealer:
    """Seals with the first key, and opens what any of them has sealed."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = {_name(key): AESGCM(key) for key in keys}
        self._cipher = AESGCM(keys[0])
        self.name = _name(keys[0]) + _BOUND
        # For digests: the disk alone does not allow guessing what they are of.
        self.digest_key = sha256(b"courier digest " + keys[0]).digest()

    def seal(self, clear: bytes, place: bytes) -> tuple[bytes, str]:
        """The sealed bytes, good in `place` only, and the name of the key that sealed them."""
        nonce = ids.new_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, clear, place), self.name

    def open(self, sealed: bytes, name: str, place: bytes) -> bytes:
        """What was sealed. Raises StoreUnavailable when its key is not at hand."""
        key = name.removesuffix(_BOUND)
        cipher = self._ciphers.get(key)
        if cipher is None:
            raise StoreUnavailable(f"it holds what was encrypted with key {key}, not configured")
        # Taking the mark away gains nothing: what was sealed with a place opens with no other.
        bound = place if key != name else None
        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise StoreUnavailable(
                f"what was encrypted with key {key} was changed, or moved from where it belongs"
            ) from None


def _name(key: bytes) -> str:
    """Tells keys apart without telling anything about them."""
    return sha256(b"courier key " + key).hexdigest()[:_NAME_DIGITS]


def new_key() -> str:
    """One for the setting."""
    return base64.b64encode(ids.new_bytes(KEY_BYTES)).decode()


def keys(text: str, *, file: Path) -> list[bytes]:
    """Keys from the setting (base64, separated by commas), else from a file made when missing."""
    if not text:
        if not file.exists():
            files.write(file, f"{new_key()}\n".encode())
        text = file.read_text(errors="replace").strip()
    found = []
    for part in text.split(","):
        try:
            key = base64.b64decode(part.strip(), validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise BadKey(f"an encryption key must be {KEY_BYTES} bytes in base64")
        found.append(key)
    return found
