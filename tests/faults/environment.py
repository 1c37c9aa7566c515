"""Verbs of the Anypoint environment as the tests here say them."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from tests.faults.connection import UNAVAILABLE, Answer, Channel, Refused
from tests.server import Server

LONG_MS = 600_000
GRANT = {"grant_type": "client_credentials"}

# A message's id and the lock it was got with.
Lock = tuple[str, str]


class Environment(Channel):
    """An environment, by default that of the first start: messages as its client app, the rest
    as its user.

    Both log in once; their tokens must outlive the server's process.
    """

    def __init__(self, server: Server, own: dict[str, Any] | None = None) -> None:
        super().__init__(server)
        own = own or server.credentials["anypoint"]
        place = f"/organizations/{own['organization_id']}/environments/{own['environment_id']}"
        region = f"{place}/regions/{own['region']}"
        self._messages = f"/api/v1{place}/destinations"
        self._admin = f"/mq/admin/api/v1{region}"
        self._stats = f"/mq/stats/api/v1{region}"
        app = {"client_id": own["client_id"], "client_secret": own["client_secret"], **GRANT}
        self.token = str(self._log_in("/api/v1/authorize", app))
        self.user_token = str(self._log_in("/accounts/login", own["user"]))

    def _log_in(self, path: str, credentials: dict[str, str]) -> Any:
        return good(self.send("POST", path, "", credentials), 200)["access_token"]

    # --- settings ---

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """What a change below the region answers; it must succeed."""
        answer = self.send(method, self._admin + path, self.user_token, body)
        return good(answer, 200, 201, 204)

    def create_queue(self, name: str, **settings: Any) -> str:
        self.admin("PUT", f"/destinations/queues/{name}", settings)
        return name

    def create_exchange(self, name: str, *queues: str) -> str:
        """An exchange that copies to these queues."""
        self.admin("PUT", f"/destinations/exchanges/{name}")
        for queue in queues:
            self.admin("PUT", f"/bindings/exchanges/{name}/queues/{queue}")
        return name

    def backlog(self, *queues: str) -> dict[str, int]:
        """How many messages each queue holds, under a lock or not."""
        query = urlencode({"destinationIds": ",".join(queues)})
        answer = self.send("GET", f"{self._stats}/queues?{query}", self.user_token)
        return {
            row["destination"]: row["messages"] + row["inflightMessages"]
            for row in good(answer, 200)
        }

    def series(self, path: str) -> dict[str, list[dict[str, Any]]]:
        """What was counted for a queue or an exchange in the last hour, as one point each."""
        answer = self.send("GET", f"{self._stats}/{path}?period=3600", self.user_token)
        series: dict[str, Any] = good(answer, 200)
        del series["destination"]
        return series

    # --- messages ---

    def try_broker(self, method: str, path: str, body: Any = None) -> Answer:
        """`path` begins with the destination."""
        return self.send(method, f"{self._messages}/{path}", self.token, body)

    def try_publish(self, destination: str, messages: Sequence[dict[str, Any]]) -> Answer:
        """Publish one message with a single call, several with a batch."""
        path = f"{destination}/messages"
        if len(messages) > 1:
            return self.try_broker("PUT", path, messages)
        [message] = messages
        id = quote(message["headers"]["messageId"], safe="")
        return self.try_broker("PUT", f"{path}/{id}", message)

    def publish(self, destination: str, *ids: str, **headers: Any) -> None:
        """Messages whose bodies are their ids."""
        messages = [message(id, **headers) for id in ids]
        answer = self.try_publish(destination, messages)
        results = good(answer, 200) if len(ids) > 1 else [good(answer, 201)]
        assert [result["messageId"] for result in results] == list(ids)
        assert {result["status"] for result in results} == {"successful"}, results

    def get(
        self, queue: str, *, count: int = 10, lock_ms: int = LONG_MS, wait_ms: int = 0
    ) -> list[dict[str, Any]]:
        query = urlencode({"batchSize": count, "lockTtl": lock_ms, "pollingTime": wait_ms})
        answer = self.try_broker("GET", f"{queue}/messages?{query}")
        found: list[dict[str, Any]] = good(answer, 200, 204) or []
        return found

    def ack(self, queue: str, locks: Sequence[Lock]) -> list[bool]:
        return self._settle("ack", queue, locks)

    def nack(self, queue: str, locks: Sequence[Lock]) -> list[bool]:
        return self._settle("nack", queue, locks)

    def extend(self, queue: str, locks: Sequence[Lock], *, seconds: int) -> list[bool]:
        return self._settle("extend", queue, locks, seconds)

    def _settle(self, verb: str, queue: str, locks: Sequence[Lock], seconds: int = 0) -> list[bool]:
        """Whether each was done; one lock with a single call, several with a batch."""
        method = "PATCH" if verb == "extend" else "DELETE"
        ttl = {"ttl": seconds} if verb == "extend" else {}
        path = f"{queue}/messages"
        if len(locks) > 1:
            path += "" if verb == "ack" else "/locks"
            items = [{"messageId": id, "lockId": lock, **ttl} for id, lock in locks]
            results = good(self.try_broker(method, path, items), 200)
            assert [(each["messageId"], each["lockId"]) for each in results] == list(locks)
        else:
            [(id, lock)] = locks
            path += f"/{quote(id, safe='')}"
            if verb != "ack":
                path += f"/locks/{quote(lock, safe='')}"
            body = {"lockId": lock} if verb == "ack" else ttl or None
            answer = self.try_broker(method, path, body)
            results = [good(answer, 200, 400)]
            assert (answer[0] == 200) == (results[0]["status"] == "successful"), answer
            assert results[0]["messageId"] == id
        return [result["status"] == "successful" for result in results]

    def drained(self, queue: str) -> list[str]:
        """Get and ack all there is; the ids in the order they came."""
        ids: list[str] = []
        while found := self.get(queue):
            assert all(self.ack(queue, locks(found)))
            ids += message_ids(found)
        return ids


def message(id: str, **headers: Any) -> dict[str, Any]:
    return {"headers": {"messageId": id, **headers}, "body": id}


def locks(found: Sequence[dict[str, Any]]) -> list[Lock]:
    return [(each["headers"]["messageId"], each["headers"]["lockId"]) for each in found]


def message_ids(found: Sequence[dict[str, Any]]) -> list[str]:
    return [each["headers"]["messageId"] for each in found]


def good(answer: Answer, *statuses: int) -> Any:
    """The JSON of an answer that must have one of these statuses; None when it is empty. Raises
    Refused if the store is away."""
    status, _, body = answer
    if status == UNAVAILABLE:
        raise Refused
    assert status in statuses, f"{status} {body[:500]!r}"
    return json.loads(body) if body else None
