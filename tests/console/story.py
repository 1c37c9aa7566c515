"""A server full of life, for pictures and browser tests."""

import time
from typing import Any

import httpx

from courier.dialects.discue.names import shown
from tests.console.conftest import new_exchange
from tests.server import Server

ARGS = ("--push-networks", "127.0.0.0/8", "--push-delay-percent", "1")


class Story:
    """Fills a server that has just started; `queues` are ids by name."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.queues: dict[str, str] = {}
        self._http = server.client()
        self.message = self.letter = ""
        self.plans: list[str] = []
        self.gone = self.exchange = self.change = ""

    def tell(self) -> "Story":
        with self._http:
            for name in (
                "orders",
                "orders-failed",
                "signups",
                "payments",
                "emails",
                "audit-log",
                "plenty",
                "invoices",
            ):
                made = self._http.post("/queues", json={"queue_name": name})
                self.queues[name] = made.json()["result"]["queue_id"]
            self._consumer("orders", {"dead_letter_queue": "orders-failed",
                                      "settings": {"max_retries": 0}})  # fmt: skip
            self._consumer("payments", {})
            self.publish("orders", [_order(n) for n in range(90)])
            self._settle("orders", 20, "acks")
            self._settle("orders", 7, "retries")
            self.publish("payments", [{"payment": n, "amount": n * 7} for n in range(40)])
            self._settle("payments", 37, "acks")
            self.publish("emails", [{"to": f"user{n}@example.org"} for n in range(12)])
            self._http.patch(f"/queues/{self.queues['emails']}",
                             json={"settings": {"delivery_paused": True}})  # fmt: skip
            self._listener()
            self.publish("signups", [{"user": f"u{n}"} for n in range(9)])
            for first in (0, 75):
                self.publish("plenty", [{"n": first + n} for n in range(75)])
            self.publish("audit-log", [{"entry": n} for n in range(5)])
            self.publish("invoices", [{"n": n} for n in range(10)])
            gone = self._http.post("/queues", json={"queue_name": "old-orders"}).json()
            self.gone = gone["result"]["queue_id"]
            self._http.delete(f"/queues/{self.gone}")
        new_exchange(self.server, "routes", ["emails", "audit-log"], country="NL")
        self._look_up()
        self._change()
        self.plans = [self._plan("orders", "purge"), self._plan("audit-log", "purge", run=True)]
        return self

    def _plan(self, queue: str, action: str, *, run: bool = False) -> str:
        headers = {"Authorization": f"Bearer {self.server.credentials['admin']['token']}"}
        asked = {"action": action, "queue": self.queues[queue]}
        made = httpx.post(f"{self.server.url}/console/plans", json=asked, headers=headers)
        path = "/" + made.headers["location"].removeprefix("../")
        if run:
            httpx.post(f"{self.server.url}{path}/run", json={}, headers=headers)
        return path

    def publish(self, queue: str, bodies: list[Any]) -> None:
        messages = [{"body": body, "content_type": "json"} for body in bodies]
        self._http.post(f"/queues/{self.queues[queue]}/messages/batch", json={"messages": messages})

    def _consumer(self, queue: str, extra: dict[str, Any]) -> None:
        body = {"type": "http_pull", **extra}
        self._http.post(f"/queues/{self.queues[queue]}/consumers", json=body)

    def _settle(self, queue: str, count: int, how: str) -> None:
        at = f"/queues/{self.queues[queue]}/messages"
        pulled = self._http.post(f"{at}/pull", json={"batch_size": count}).json()
        leases = [{"lease_id": each["lease_id"]} for each in pulled["result"]["messages"]]
        self._http.post(f"{at}/ack", json={how: leases})

    def _listener(self) -> None:
        """Nobody listens there."""
        url = "http://127.0.0.1:9/signup"
        body = {"name": "mailer", "notify_url": url, "liveness_url": url}
        made = httpx.post(
            f"{self.server.url}/v1/queues/{shown(self.queues['signups'])}/listeners",
            json=body,
            headers={"X-API-KEY": self.server.credentials["discue"]["api_key"]},
        )
        assert made.status_code < 300, made.text

    def _look_up(self) -> None:
        """A message that waits, and one that was buried."""
        headers = {
            "Authorization": f"Bearer {self.server.credentials['admin']['token']}",
            "Accept": "application/json",
        }
        listed = httpx.get(f"{self.server.url}/console?q=routes", headers=headers).json()
        self.exchange = listed["rows"][0]["id"]
        for queue in ("orders", "orders-failed"):
            at = f"{self.server.url}/console/queues/{self.queues[queue]}"
            row = httpx.get(at, headers=headers).json()["messages"]["rows"][0]
            if queue == "orders":
                self.message = row["id"]
            else:
                self.letter = row["id"]

    def _change(self) -> None:
        """Settings that can be set back, and something of each kind of connection."""
        headers = {
            "Authorization": f"Bearer {self.server.credentials['admin']['token']}",
            "Accept": "application/json",
        }
        with self.server.client() as http:
            settings = {"settings": {"message_retention_period": 86_400}}
            http.patch(f"/queues/{self.queues['audit-log']}", json=settings)
        at = f"{self.server.url}/console"
        query = f"queue={self.queues['audit-log']}&kind=queue_updated"
        events = httpx.get(f"{at}/events?{query}", headers=headers).json()["rows"]
        self.change = (
            f"/console/queues/{self.queues['audit-log']}/settings?event={events[0]['offset']}"
        )
        for form in (
            {"action": "worker", "name": "resize", "url": "http://127.0.0.1:9/resize"},
            {"action": "subscription", "name": "news", "source": "courier.queue",
             "events": "created", "queue": "audit-log"},
            {"action": "domain", "name": "hooks", "hostname": "hooks.example.org", "port": "443"},
        ):  # fmt: skip
            made = httpx.post(f"{at}/settings/connections", json=form, headers=headers)
            assert made.status_code < 400, made.text

    def pages(self) -> dict[str, str]:
        """Every page that looks different from others, by name."""
        orders = self.queues["orders"]
        return {
            "queues": "/console",
            "no-hit": "/console?q=ordrs",
            "queue": f"/console/queues/{orders}",
            "queue-compared": f"/console/queues/{orders}?last=24h&against=day&q=c00003",
            "listener": f"/console/queues/{self.queues['signups']}",
            "leased": f"/console/queues/{self.queues['payments']}?state=leased",
            "dead-letters": f"/console/queues/{orders}?state=dead&order=oldest",
            "again": f"/console/queues/{orders}?again={self.message}",
            "set-back": self.change,
            "connections": "/console/settings/connections",
            "message": f"/console/messages/{self.message}?queue={orders}",
            "letter": f"/console/messages/{self.letter}?queue={self.queues['orders-failed']}",
            "events": "/console/events",
            "server": "/console/settings",
            "keys": "/console/settings/keys",
            "tenants": "/console/settings/tenants",
            "exchange": f"/console/exchanges/{self.exchange}?headers=%7B%7D",
            "deleted": f"/console/queues/{self.gone}",
            "past": f"/console?at={time.strftime('%Y-%m-%dT%H:%MZ', time.gmtime())}",
            "lake": "/console/lake",
            "audit": "/console/lake/audit",
            "plans": "/console/plans",
            "plan": self.plans[0],
            "receipt": self.plans[1],
            "find": "/console/find?q=order",
            "nowhere": "/console/nowhere",
        }


def _order(number: int) -> dict[str, Any]:
    return {"order": number, "customer": f"c{number % 17:05d}", "items": [{"sku": "A1", "n": 2}]}
