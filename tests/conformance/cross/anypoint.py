"""The same tenant as a client of Anypoint MQ sees it."""

import uuid
from typing import Any

import httpx


class Anypoint:
    """Acts in `region`: the server's own, unless another is named."""

    def __init__(self, http: httpx.Client, account: dict[str, Any], region: str = "") -> None:
        self._http = http
        self.account = account
        self.region = region or account["region"]
        place = (
            f"/organizations/{account['organization_id']}/environments/{account['environment_id']}"
        )
        self._broker = f"/api/v1{place}/destinations"
        self._admin = f"/mq/admin/api/v1{place}/regions/{self.region}"
        self._stats = f"/mq/stats/api/v1{place}"

    def elsewhere(self, region: str) -> "Anypoint":
        return Anypoint(self._http, self.account, region)

    def attempt(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        # Broker paths name no region; the host does.
        host = self._http.base_url.netloc.decode()
        headers = {"Host": f"mq-{self.region}.{host}"}
        return self._http.request(method, path, json=body, params=query, headers=headers)

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.attempt(method, path, body, **query)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    # --- destinations ---

    def queue_path(self, name: str) -> str:
        return f"{self._admin}/destinations/queues/{name}"

    def create(self, name: str, **settings: Any) -> None:
        self.call("PUT", self.queue_path(name), settings)

    def edit(self, name: str, **settings: Any) -> None:
        """Change only what is named."""
        self.call("PATCH", self.queue_path(name).replace("/v1/", "/v2/", 1), settings)

    def queue(self, name: str) -> dict[str, Any]:
        queue: dict[str, Any] = self.call("GET", self.queue_path(name))
        return queue

    def queues(self) -> list[str]:
        listed = self.call("GET", f"{self._admin}/destinations", destinationType="queue")
        return [queue["queueId"] for queue in listed]

    def delete(self, name: str) -> None:
        self.call("DELETE", self.queue_path(name))

    def purge(self, name: str) -> None:
        self.call("DELETE", f"{self.queue_path(name)}/messages")

    def create_exchange(self, name: str) -> None:
        self.call("PUT", f"{self._admin}/destinations/exchanges/{name}")

    def bind(self, exchange: str, queue: str) -> None:
        """Make the exchange, and bind the queue to it."""
        self.create_exchange(exchange)
        self.call("PUT", f"{self._admin}/bindings/exchanges/{exchange}/queues/{queue}")

    def bindings(self, exchange: str) -> list[str]:
        listed = self.call("GET", f"{self._admin}/bindings/exchanges/{exchange}")
        return [binding["queueId"] for binding in listed]

    # --- messages ---

    def messages_path(self, name: str) -> str:
        return f"{self._broker}/{name}/messages"

    def publish(
        self,
        name: str,
        body: str | None,
        *,
        id: str = "",
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        message: dict[str, Any] = {"headers": headers or {}, "properties": properties or {}}
        if body is not None:
            message["body"] = body
        self.call("PUT", f"{self.messages_path(name)}/{id or uuid.uuid4()}", message)

    def get(
        self, name: str, count: int = 10, *, wait_ms: int = 0, **query: Any
    ) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] | None = self.call(
            "GET", self.messages_path(name), batchSize=count, pollingTime=wait_ms, **query
        )
        return messages or []

    def ack(self, name: str, *messages: dict[str, Any]) -> int:
        """How many of them counted."""
        return self._settle("DELETE", self.messages_path(name), messages)

    def nack(self, name: str, *messages: dict[str, Any]) -> int:
        return self._settle("DELETE", f"{self.messages_path(name)}/locks", messages)

    def extend(self, name: str, message: dict[str, Any], *, ttl_s: int) -> int:
        return self._settle("PATCH", f"{self.messages_path(name)}/locks", [message], ttl=ttl_s)

    def _settle(self, method: str, path: str, messages: Any, **fields: Any) -> int:
        items = [
            {
                "messageId": message["headers"]["messageId"],
                "lockId": message["headers"]["lockId"],
                **fields,
            }
            for message in messages
        ]
        results = self.call(method, path, items)
        return sum(result["status"] == "successful" for result in results)

    # --- statistics ---

    def numbers(self, name: str) -> dict[str, int]:
        [current] = self.call(
            "GET", f"{self._stats}/regions/{self.region}/queues", destinationIds=name
        )
        return {key: value for key, value in current.items() if key != "destination"}

    def sums(self, name: str) -> dict[str, int]:
        """What happened on the queue in the last hour."""
        path = f"{self._stats}/regions/{self.region}/queues/{name}"
        series = self.call("GET", path, period=3600)
        return {key: points[0]["value"] for key, points in series.items() if key != "destination"}

    def use(self) -> dict[str, int]:
        """What the environment has used since yesterday."""
        days = self.call("GET", self._stats, period="1day")
        names = ("apiRequestCount", "messageReceiptCount", "billableUnitCount", "messageByteCount")
        return {name: sum(day[name] for day in days) for name in names}
