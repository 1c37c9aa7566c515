"""Signing in and out: by a key, by user and password, by a link that works once."""

from msgspec import Struct
from msgspec.structs import replace

from courier.console import Page, Redirect, Services, forms
from courier.console.guard import CODE_MS, page_after
from courier.core import keys
from courier.core.errors import InvalidRequest, Unauthenticated
from courier.core.types import SECOND_MS, Key
from courier.web import Call, Handler


class SignInFacts(Struct):
    """`then` is the page to go to; `problem` is why the last attempt failed, "" at the first."""

    then: str
    problem: str = ""


class Link(Struct):
    """A link that signs in once, and the seconds that it is good for."""

    url: str
    seconds: int


class Doors:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._keyring = keys.Keyring(services.store.records)

    def handlers(self) -> dict[str, Handler]:
        return {
            "show_sign_in": self.show_sign_in,
            "sign_in": self.sign_in,
            "enter": self.enter,
            "sign_out": self.sign_out,
            "make_link": self.make_link,
        }

    async def show_sign_in(self, call: Call) -> Page:
        return Page("sign_in.html", SignInFacts(_then(call)))

    async def sign_in(self, call: Call) -> Page | Redirect:
        asked: forms.SignIn = call.body
        if not asked.key and not (asked.user and asked.password):
            problem = "Give a key, or a user and a password."
            return Page("sign_in.html", SignInFacts(_then(call), problem), status=400)
        try:
            proof = await self._proved(asked)
        except Unauthenticated:
            self._services.failed(call.request)
            raise
        return await self._opened(call, proof.key, until_ms=proof.until_ms)

    async def _proved(self, asked: forms.SignIn) -> keys.Proof:
        now_ms = self._services.clock.now_ms()
        if asked.key:
            return await self._keyring.prove(asked.key.strip(), now_ms=now_ms, kind="token")
        proof = await self._keyring.prove(asked.password, now_ms=now_ms, kind="user")
        if proof.key.name != asked.user:
            raise keys.refused(proof.key, "wrong_name")
        return proof

    async def enter(self, call: Call) -> Redirect:
        code = call.request.query.get("code", [""])[-1]
        if not code:
            raise InvalidRequest("code", "the link has none")
        try:
            id = self._services.codes.use(code)
            key = self._services.store.records.get(Key, id)
            if key is None or not key.enabled:
                raise Unauthenticated("unknown", signin="unknown_code")
        except Unauthenticated:
            self._services.failed(call.request)
            raise
        return await self._opened(call, key)

    async def _opened(self, call: Call, key: Key, *, until_ms: int | None = None) -> Redirect:
        sessions = self._services.admin.browser_sessions
        actor = replace(call.actor, id=key.id)
        token = await sessions.open(key, until_ms=until_ms, actor=actor)
        return Redirect(_then(call), (self._services.guard.cookie(token),))

    async def sign_out(self, call: Call) -> Redirect:
        guard = self._services.guard
        token = guard.session(call.request)
        if token:
            await self._services.admin.browser_sessions.end(token, actor=call.actor)
        return Redirect("/console/sign-in", (guard.cookie(""),))

    async def make_link(self, call: Call) -> Link:
        """For the key that asks, such as the operator's on the command line."""
        assert call.key is not None
        return Link(self._services.sign_in_url(call.key.id), CODE_MS // SECOND_MS)


def _then(call: Call) -> str:
    return page_after(call.request.query.get("then", [""])[-1])
