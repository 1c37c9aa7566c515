"""Courier through its Anypoint dialect, driven as barely as through the Cloudflare one.

Publishers choose the ids of their messages here. Each is a new one, as long and as much without
order as the UUIDs that they usually are: known paths and rising ids would flatter the server.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from bench import http
from bench.client import NewScript, Refused, Script
from bench.courier import Courier, CourierServer
from bench.workload import BODY, Workload

BATCH_MAX = 10
_CREATED = b"HTTP/1.1 201 "
_MESSAGE_ID = re.compile(rb'"messageId": ?"([^"]+)"')
_LOCK_ID = re.compile(rb'"lockId": ?"([^"]+)"')
_SUCCESSFUL = re.compile(rb'"status": ?"successful"')
_ID = b"%013x-4000-8000-%012x"
_ANY_ID = _ID % (0, 0)
# Odd, so that different numbers stay different.
_SCATTER = 0x9E3779B97F4A7C15

# Ids and locks of messages.
Locked = Sequence[tuple[bytes, bytes]]


class Destination:
    """The requests of one queue, as bytes."""

    def __init__(self, path: str, token: str) -> None:
        self._path = f"{path}/messages"
        self._token = token
        self._numbers = count(1)

    def _new_id(self) -> bytes:
        number = next(self._numbers)
        return _ID % (number * _SCATTER & 0xFFFFFFFFFFFFF, number)

    def _request(self, method: str, place: str, body: bytes = b"") -> bytes:
        return http.request(self._path + place, token=self._token, body=body, method=method)

    def put(self, batch: int) -> bytes:
        """A request to publish, with a `%b` for the id of each message."""
        if batch == 1:
            body = json.dumps({"body": BODY.decode()}).encode()
            request = self._request("PUT", f"/{_ANY_ID.decode()}", body)
        else:
            item = {"headers": {"messageId": _ANY_ID.decode()}, "body": BODY.decode()}
            request = self._request("PUT", "", json.dumps([item] * batch).encode())
        return request.replace(_ANY_ID, b"%b")

    def get(self, batch: int, *, wait_ms: int = 0) -> bytes:
        return self._request("GET", f"?batchSize={batch}&pollingTime={wait_ms}")

    def ack(self, messages: Locked) -> bytes:
        if len(messages) == 1:
            [(id, lock)] = messages
            return self._request("DELETE", f"/{id.decode()}", b'{"lockId":"%b"}' % lock)
        items = b",".join([b'{"messageId":"%b","lockId":"%b"}' % each for each in messages])
        return self._request("DELETE", "", b"[%b]" % items)

    def publishing(self, batch: int) -> NewScript:
        put, new_id = self.put(batch), self._new_id

        def one() -> Script:
            http.check((yield put % new_id(), http.whole), _CREATED)
            return 1

        def many() -> Script:
            ids = tuple([new_id() for _ in range(batch)])
            check_done((yield put % ids, http.whole), batch)
            return batch

        return one if batch == 1 else many

    def cycling(self, batch: int) -> NewScript:
        publish = self.publishing(batch)
        get = self.get(batch)

        def script() -> Script:
            yield from publish()
            messages = locked((yield get, http.whole))
            check_done((yield self.ack(messages), http.whole), len(messages))
            return len(messages)

        return script


def locked(answer: bytes) -> Locked:
    http.check(answer)
    found = list(zip(_MESSAGE_ID.findall(answer), _LOCK_ID.findall(answer), strict=True))
    if not found:
        raise Refused("nothing to get")
    return found


def check_done(answer: bytes, count: int) -> None:
    http.check(answer)
    if len(_SUCCESSFUL.findall(answer)) != count:
        raise Refused(f"{count} messages, answer: {answer[-500:]!r}")


class Paths:
    """Where a tenant's queues are, and who may reach them."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        place = f"organizations/{own['organization_id']}/environments/{own['environment_id']}"
        self._broker = f"/api/v1/{place}/destinations"
        self._admin = f"/mq/admin/api/v1/{place}/regions/{own['region']}/destinations/queues"
        app = {"client_id": own["client_id"], "client_secret": own["client_secret"]}
        self.authorize = (
            *("/api/v1/authorize", ""),
            {**app, "grant_type": "client_credentials"},
        )
        self.login = ("/accounts/login", "", own["user"])

    def queue(self, name: str) -> str:
        return f"{self._admin}/{name}"

    def destination(self, name: str) -> str:
        return f"{self._broker}/{name}"


class AnypointServer(CourierServer):
    def __init__(self, directory: Path, *args: str) -> None:
        super().__init__(directory, args=args)
        self._paths = Paths(self.credentials["anypoint"])
        self._app_token = self._access(*self._paths.authorize)
        self._user_token = self._access(*self._paths.login)
        self.destination = self.new_destination("bench-anypoint")

    def _access(self, path: str, token: str, body: dict[str, str]) -> str:
        made: str = http.ask(self.process.port, "POST", path, body=body)["access_token"]
        return made

    def new_destination(self, name: str) -> Destination:
        """Make a standard queue with default settings."""
        path = self._paths.queue(name)
        http.ask(self.process.port, "PUT", path, token=self._user_token, body={})
        return Destination(self._paths.destination(name), self._app_token)

    def new_destination_request(self, name: str) -> bytes:
        path = self._paths.queue(name)
        return http.request(path, token=self._user_token, body=b"{}", method="PUT")

    def publish(self, client: int, batch: int) -> NewScript:
        return self.destination.publishing(batch)

    def cycle(self, client: int, batch: int) -> NewScript:
        return self.destination.cycling(batch)


class Anypoint(Courier):
    name = "courier, anypoint"

    def takes(self, workload: Workload) -> bool:
        return workload.batch <= BATCH_MAX

    def start(self, directory: Path) -> AnypointServer:
        return AnypointServer(directory)
