"""What keeps a session its owner's: its cookie, the token in forms, and headers of every answer."""

import base64
import hmac
import re
from hashlib import blake2b
from urllib.parse import urlsplit

from msgspec import Struct

from courier import ids
from courier.clock import Clock
from courier.core.errors import Rejected, Unauthenticated
from courier.core.sessions import BROWSER_WHOLE_MS
from courier.core.types import MINUTE_MS, SECOND_MS
from courier.web import Request

COOKIE = "courier_console"
COOKIES_BYTES_MAX = 8 << 10
CODE_MS = 10 * MINUTE_MS
CODES_MAX = 100
TOKEN_BYTES = 18
PAGE_CHARACTERS_MAX = 4_000
_TOKEN = re.compile(r"[A-Za-z0-9_=-]{20,200}")
# Where a sign-in or a form may lead: a page of the console, and nowhere else.
_PAGE = re.compile(r"/console(?:/[A-Za-z0-9._~%-]+)*(?:\?[!-~]*)?")

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
NOT_KEPT = (b"cache-control", b"no-store")


class ForeignForm(Rejected):
    """A form that was not sent by a page of ours, or by one of another session."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this form was not accepted: {why}. Open the page again and repeat")


class Guard:
    """`secret` is the store's; `public_url` is where browsers see the console."""

    def __init__(self, secret: bytes, public_url: str) -> None:
        self._secret = secret
        parts = urlsplit(public_url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._encrypted = parts.scheme == "https"
        self._cookie = f"__Host-{COOKIE}" if self._encrypted else COOKIE

    def session(self, request: Request) -> str:
        """The session's token that the request shows, "" for none."""
        given = request.headers.get(b"cookie", b"")[:COOKIES_BYTES_MAX].decode("latin-1")
        for part in given.split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._cookie and _TOKEN.fullmatch(value):
                return value
        return ""

    def cookie(self, token: str) -> tuple[bytes, bytes]:
        """The header that sets the session's cookie; without a token, the one that ends it."""
        age_s = BROWSER_WHOLE_MS // SECOND_MS if token else 0
        secure = "; Secure" if self._encrypted else ""
        text = f"{self._cookie}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age_s}{secure}"
        return b"set-cookie", text.encode()

    def form_token(self, session: str) -> str:
        """What every form of this session carries, spelled differently on every page.

        So that the length of a compressed page says nothing about it.
        """
        mask = ids.new_bytes(TOKEN_BYTES)
        return base64.urlsafe_b64encode(mask + _xor(self._form_mac(session), mask)).decode()

    def _form_mac(self, session: str) -> bytes:
        mac = blake2b(
            session.encode(), key=self._secret, digest_size=TOKEN_BYTES, person=b"console-form"
        )
        return mac.digest()

    def check_origin(self, request: Request) -> None:
        """Raises ForeignForm unless a page of ours sent this."""
        site = request.header(b"sec-fetch-site")
        if site:
            if site != "same-origin":
                raise ForeignForm("another site sent it")
            return
        origin = request.header(b"origin")
        host = request.header(b"host")
        if not origin or origin not in (self._origin, f"http://{host}", f"https://{host}"):
            raise ForeignForm("it does not say that a page of this server sent it")

    def check_token(self, request: Request, given: str) -> None:
        try:
            spelled = base64.urlsafe_b64decode(given.encode("ascii", "replace"))
        except ValueError:
            spelled = b""
        shown = _xor(spelled[:TOKEN_BYTES], spelled[TOKEN_BYTES:])
        if not hmac.compare_digest(self._form_mac(self.session(request)), shown):
            raise ForeignForm("it belongs to another session, or to one that has ended")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=False))


def page_after(given: str, otherwise: str = "/console") -> str:
    """Where to go after a sign-in or an action."""
    ours = len(given) <= PAGE_CHARACTERS_MAX and _PAGE.fullmatch(given)
    return given if ours and "/sign-" not in given and ".." not in given else otherwise


class _Code(Struct, frozen=True):
    code: str
    key: str
    until_ms: int


class Codes:
    """Links that sign in once: in memory only, and each good for ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: list[_Code] = []

    def new(self, key: str) -> str:
        """A code that signs in as this key (id)."""
        now_ms = self._clock.now_ms()
        kept = [each for each in self._codes if each.until_ms > now_ms]
        made = _Code(ids.new_secret(), key, now_ms + CODE_MS)
        self._codes = [*kept[1 - CODES_MAX :], made]
        return made.code

    def use(self, code: str) -> str:
        """The key's id. Raises Unauthenticated for a code that is unknown, used or too old."""
        now_ms = self._clock.now_ms()
        # All are compared, so that time does not tell how much of one was right.
        found = [each for each in self._codes if ids.same(each.code, code)]
        if not found or found[0].until_ms <= now_ms:
            raise Unauthenticated("unknown", signin="unknown_code")
        self._codes.remove(found[0])
        return found[0].key
