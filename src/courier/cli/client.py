"""HTTP to a server, as any caller would do it: one bounded request at a time."""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from courier.cli.credentials import Access
from courier.cli.errors import Misused, Refused, Unreachable
from courier.cli.parser import meant

WAIT_SECONDS_MAX = 60.0
ANSWER_BYTES_MAX = 256 * 1024 * 1024


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


class Client:
    """One caller's view of a server. Every request has a connection of its own.

    What the server refuses raises Refused with its message; no answer raises Unreachable.
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
            raise Misused(f"there are no credentials of tenant '{self.tenant}': give --token")
        path = f"/client/v4/accounts/{segment(self._account_id())}{path}"
        return self._result(method, path, body, query=query, headers=headers)

    def operate(self, method: str, path: str, body: object = None) -> Any:
        """A request to the operator's routes, with the operator's token if there is one."""
        return self._read(method, f"/courier/v1{path}", body, token=self._operator())

    def freeze(self, queue: str, *, frozen: bool) -> None:
        self._own("PUT", f"/queues/{segment(queue)}/frozen", {"frozen": frozen})

    def redrive(self, queue: str, wanted: dict[str, Any]) -> dict[str, int]:
        answer: dict[str, int] = self._own("POST", f"/queues/{segment(queue)}/redrive", wanted)
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
            raise Refused(f"queue '{name}' does not exist{meant(name, names)}")
        return found[0]

    def console_link(self) -> str:
        """A link that signs in to the console once, as this caller."""
        made = self._read("POST", "/console/enter", {}, token=self._operator())
        return str(made["url"])

    def journal_head(self) -> dict[str, Any]:
        head: dict[str, Any] = self._read("GET", "/journal/head", None, token=self._operator())
        return head

    def forget_pipeline(self, name: str) -> None:
        """The journal no longer waits for this reader."""
        self._read("DELETE", f"/journal/pipelines/{segment(name)}", None, token=self._operator())

    def pipelines(self) -> list[dict[str, Any]]:
        """The registered readers of the journal."""
        told = self._read("GET", "/journal/pipelines", None, token=self._operator())
        readers: list[dict[str, Any]] = told["pipelines"]
        return readers

    def journal(self, *, after: int, limit: int) -> tuple[list[bytes], int]:
        """Events with up to `limit` of the next offsets that the token may see, as lines of JSON.

        The number beside them is the last offset that was looked at.
        """
        path = "/journal?" + urlencode({"after": after, "limit": limit})
        with self._open("GET", path, None, self._operator(), {}) as answer:
            content = self._body(answer)
        if answer.status != 200:
            raise Refused(_reason(answer.status, content))
        return content.split(b"\n")[:-1], int(answer.getheader("x-courier-upto") or after)

    def _operator(self) -> str:
        return self._access.admin_token or self._access.token

    def _account_id(self) -> str:
        if not self._account:
            accounts = self._result("GET", "/client/v4/accounts", None)
            if len(accounts) != 1:
                raise Misused(f"the token opens {len(accounts)} accounts: choose with --account")
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
        if not isinstance(answer, dict) or "result" not in answer:
            raise Refused(f"{self._access.url} does not answer as a Courier server does")
        return answer["result"]

    def _read(
        self,
        method: str,
        path: str,
        body: object,
        *,
        token: str,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        with self._open(method, path, body, token, headers or {}) as answer:
            content = self._body(answer)
        if answer.status >= 300:
            raise Refused(_reason(answer.status, content))
        if not content:
            return None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise Refused(f"{self._access.url} answered with something that is not JSON") from error

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        content = answer.read(ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            raise Refused(f"{self._access.url} answered with more than {ANSWER_BYTES_MAX} bytes")
        return content

    @contextmanager
    def _open(
        self, method: str, path: str, body: object, token: str, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        connection, prefix = _connection(self._access.url)
        content = None if body is None else msgspec.json.encode(body)
        sent = {"Authorization": f"Bearer {token}", "Connection": "close", **headers}
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.connect()
            # A body over the server's cap is refused before it is read; the answer is there.
            with suppress(ConnectionError):
                connection.request(method, prefix + path, content, sent)
            yield connection.getresponse()
        except UnicodeError as error:  # no host can have such a name
            raise Misused(_no_address(self._access.url)) from error
        except TimeoutError as error:
            raise Unreachable(self._unreachable("it did not answer in time")) from error
        except OSError as error:
            raise Unreachable(self._unreachable(error.strerror or str(error))) from error
        except http.client.HTTPException as error:
            raise Unreachable(self._unreachable("its answer broke off or is not HTTP")) from error
        finally:
            connection.close()

    def _unreachable(self, why: str) -> str:
        return (
            f"cannot reach {self._access.url} ({why}): start the server with `courier serve`, "
            "or name another with --url"
        )


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection, and the path that goes before every path."""
    try:
        parts = urlsplit(url)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if not parts.hostname or quote(parts.path, safe="/%:@!$&'()*+,;=~") != parts.path:
            raise ValueError("it names no host, or its path is not written as in a URL")
        return kind[parts.scheme](parts.hostname, parts.port, timeout=WAIT_SECONDS_MAX), parts.path
    except (ValueError, KeyError, http.client.InvalidURL) as error:
        raise Misused(_no_address(url)) from error


def _no_address(url: str) -> str:
    return f"{url!r} is not an http:// or https:// address"


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
    return " ".join(text.split())
