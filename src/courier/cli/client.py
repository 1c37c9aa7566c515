"""HTTP to a server, as any caller would do it: one bounded request at a time."""

import http.client
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from courier.cli import output
from courier.cli.credentials import Access
from courier.cli.errors import Failed, Misused, Unreachable
from courier.cli.parser import meant
from courier.masking import masked
from courier.requester import BadAddress, Reply, Requester, TooLong

JSON = "application/json"


# Fields of a request that flags give as durations, and how many of their units are a second.
_FLAGS = {
    "delivery_delay": ("--delay", 1),
    "delay_seconds": ("--delay", 1),
    "message_retention_period": ("--retention", 1),
    "retry_delay": ("--retry-delay", 1),
    "visibility_timeout_ms": ("--lease", 1_000),
    "timeout_ms": ("--timeout", 1_000),
    "expires_in_seconds": ("--expires", 1),
}
_BOUND = re.compile(r"(?:\w+\.)?(\w+): must be (at most|at least) (\d{1,18}), not (\d{1,18})( .*)?")


def segment(text: str) -> str:
    """A name as one segment of a path."""
    if not text:
        raise Misused("a name must not be empty")
    return quote(text, safe="")


class ApiClient:
    """One caller's view of a server. Every request has a connection of its own.

    What the server refuses raises Failed with its message; no answer raises Unreachable.
    """

    def __init__(self, access: Access) -> None:
        self.tenant = access.tenant
        self._access = access
        self._account = access.account

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """A request in the Cloudflare dialect, below the account; returns its `result`."""
        if not self._access.token:
            raise Misused(f"no credentials for tenant '{self.tenant}': give --token")
        path = f"/client/v4/accounts/{segment(self._account_id())}{path}"
        return self._result(method, path, body, query=query, headers=headers)

    def operate(self, method: str, path: str, body: object = None) -> Any:
        """A request to the operator's routes, with the operator's token if there is one."""
        return self._read(method, f"/courier/v1{path}", body, token=self._operator())

    def freeze(self, queue: str, *, frozen: bool) -> None:
        self._own("PUT", f"/queues/{segment(queue)}/frozen", {"frozen": frozen})

    def redrive(self, queue: str, wanted: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._own("POST", f"/queues/{segment(queue)}/redrive", wanted)
        return answer

    def _own(self, method: str, path: str, body: object) -> Any:
        """A request to the tenant's own routes, as the tenant if it has a token."""
        token = self._access.token or self._access.admin_token
        path = f"/courier/v1/tenants/{segment(self.tenant)}{path}"
        return self._read(method, path, body, token=token)

    def queue(self, name: str) -> dict[str, Any]:
        """The queue with this name."""
        found: list[dict[str, Any]] = self.call("GET", "/queues", query={"name": name})
        if not found:
            names = [each["queue_name"] for each in self.call("GET", "/queues")]
            raise Failed(f"queue '{name}' does not exist{meant(name, names)}")
        return found[0]

    def tenant_id(self, name: str) -> str:
        """The id of the tenant with this name. For the operator."""
        for tenant in self.operate("GET", "/tenants")["tenants"]:
            if tenant["name"] == name:
                return str(tenant["id"])
        raise Failed(f"tenant '{name}' does not exist")

    def backfill(
        self, queue: str, listener: str, wanted: dict[str, Any], bound: Callable[[int], None]
    ) -> int:
        """Have a listener pushed what its queue still holds; how many messages that are. `bound`
        is called with how many there are so far."""
        path = f"/tenants/{segment(self.tenant)}/queues/{segment(queue)}/listeners"
        path += f"/{segment(listener)}/backfill"
        count: int = 0
        while True:
            done = self.operate("POST", path, wanted)
            count += done["bound"]
            bound(count)
            if done["next"] is None:
                return count
            wanted = {**wanted, "after": done["next"]}

    def page(self, path: str, query: Mapping[str, str], *, has: str) -> dict[str, Any]:
        """The facts of a page of the console, as the tenant if it has a token.

        They have the member `has`; what has not is no answer of ours.
        """
        path = f"/console{path}?" + urlencode({**query, "tenant": self.tenant})
        token = self._access.token or self._access.admin_token
        try:
            facts = self._read("GET", path, None, token=token, headers={"Accept": JSON})
        except Failed as error:
            if str(error).startswith("no such path: /console"):
                raise Failed("this needs the server's setting `console`, which is off") from error
            raise
        return self._expect(facts, has)

    def console_link(self) -> str:
        """A link that signs in to the console once, as this caller."""
        made = self._read("POST", "/console/enter", {}, token=self._operator())
        return str(made["url"])

    def console(self, method: str, path: str, body: object = None) -> Any:
        """The facts of a page of the console; of a form, as `path`, where it leads."""
        headers = {"Accept": JSON}
        answer = self._ask(method, f"/console{path}", body, self._operator(), headers)
        if answer.status not in (200, 303):
            raise Failed(_reason(answer.status, answer.body))
        return msgspec.json.decode(answer.body)

    def journal_head(self, *, at_ms: int | None = None) -> dict[str, Any]:
        """Where the journal is; with a time, `before` is the last offset before that."""
        path = "/journal/head" + ("" if at_ms is None else f"?at_ms={at_ms}")
        head: dict[str, Any] = self._read("GET", path, None, token=self._operator())
        return head

    def forget_pipeline(self, name: str) -> None:
        """The journal no longer waits for this reader."""
        self._read("DELETE", f"/journal/pipelines/{segment(name)}", None, token=self._operator())

    def pipelines(self) -> list[dict[str, Any]]:
        """The registered readers of the journal."""
        told = self._read("GET", "/journal/pipelines", None, token=self._operator())
        readers: list[dict[str, Any]] = told["pipelines"]
        return readers

    def journal(
        self, *, after: int, limit: int, filters: Mapping[str, list[str]]
    ) -> tuple[list[bytes], int]:
        """Events with up to `limit` of the next offsets that the token may see, as lines of JSON.

        The number beside them is the last offset that was looked at.
        """
        path = "/journal?" + urlencode({"after": after, "limit": limit, **filters}, doseq=True)
        answer = self._ask("GET", path, None, self._operator(), {})
        if answer.status != 200:
            raise Failed(_reason(answer.status, answer.body))
        return answer.body.split(b"\n")[:-1], int(answer.headers.get("x-courier-upto") or after)

    def _operator(self) -> str:
        return self._access.admin_token or self._access.token

    def _account_id(self) -> str:
        if not self._account:
            accounts = self._result("GET", "/client/v4/accounts", None)
            if len(accounts) != 1:
                raise Misused(
                    f"the token is valid for {len(accounts)} accounts: choose with --account"
                )
            self._account = accounts[0]["id"]
        return self._account

    def _result(
        self,
        method: str,
        path: str,
        body: object,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        if query:
            path += "?" + urlencode(query)
        answer = self._read(method, path, body, token=self._access.token, headers=headers)
        return self._expect(answer, "result")["result"]

    def _expect(self, answer: Any, member: str) -> dict[str, Any]:
        if not isinstance(answer, dict) or member not in answer:
            raise Failed(f"{masked(self._access.url)} does not answer like a Courier server")
        return answer

    def _read(
        self,
        method: str,
        path: str,
        body: object,
        *,
        token: str,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        answer = self._ask(method, path, body, token, headers or {})
        content = answer.body
        if answer.status >= 300:
            raise Failed(_reason(answer.status, content))
        if not content:
            return None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            where = masked(self._access.url)
            raise Failed(f"{where} answered with something that is not JSON") from error

    def _ask(
        self, method: str, path: str, body: object, token: str, headers: Mapping[str, str]
    ) -> Reply:
        content = None if body is None else msgspec.json.encode(body)
        sent = {"Authorization": f"Bearer {token}", "Connection": "close", **headers}
        if content is not None:
            sent["Content-Type"] = JSON
        try:
            requester = Requester(self._access.url)
            with closing(requester):
                return requester.ask(method, path, content, sent)
        except (UnicodeError, BadAddress):
            address = "is not an http:// or https:// address"
            raise Misused(f"{masked(self._access.url)!r} {address}") from None
        except TooLong as error:
            raise Failed(f"{masked(self._access.url)}: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(
                f"{masked(self._access.url)} has an untrusted certificate "
                f"({error.verify_message}): set SSL_CERT_FILE to the file of its issuer"
            ) from error
        except TimeoutError as error:
            raise Unreachable(self._unreachable("it did not answer in time")) from error
        except OSError as error:
            raise Unreachable(self._unreachable(error.strerror or str(error))) from error
        except http.client.HTTPException as error:
            raise Unreachable(self._unreachable("its answer was cut off or is not HTTP")) from error

    def _unreachable(self, why: str) -> str:
        return (
            f"cannot reach {masked(self._access.url)} ({why}): start the server with "
            "`courier serve`, or name another with --url"
        )


def _reason(status: int, content: bytes) -> str:
    """The server's own words, on one line."""
    try:
        answer = msgspec.json.decode(content)
        if "errors" in answer:
            error = answer["errors"][0]
            text = f"{error['message']} [code: {error['code']}]"
        else:
            text = answer["error"]["message"]
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        text = content[:200].decode("utf-8", "replace") or http.client.responses.get(status, "")
        text = f"the server answered {status}: {text}"
    return _with_flags(" ".join(text.split()))


def _with_flags(text: str) -> str:
    """A refused duration under the name of its flag, and written as the flag takes it."""
    found = _BOUND.fullmatch(text)
    if found is None or found[1] not in _FLAGS:
        return text
    flag, unit = _FLAGS[found[1]]
    limit, given = (
        f"{n * 1_000 // unit}ms" if n % unit else output.duration(n // unit)
        for n in map(int, found.group(3, 4))
    )
    return f"{flag}: must be {found[2]} {limit}, not {given}{found[5] or ''}"
