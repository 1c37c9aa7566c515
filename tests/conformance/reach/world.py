"""A tenant with the same things twice, and keys that reach one of them."""

import itertools
import uuid
from dataclasses import dataclass
from typing import Any

import httpx

from courier.core.types import HOUR_MS
from courier.dialects.discue import names
from tests.server import Server

GRANT = {"grant_type": "client_credentials"}
WRITE = ["write", "usage:read"]
EVERYTHING = [*WRITE, "keys:read", "keys:write", "journal"]
_KV = {"type": "kv"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Credential:
    """One key in the forms in which the sites want it, and the ids that it acts under."""

    token: str
    session: str
    ids: tuple[str, ...]

    def headers(self, site: str) -> dict[str, str]:
        if site == "discue":
            return {"X-API-KEY": self.token}
        if site == "console":
            return {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        return {"Authorization": f"Bearer {self.session if site == 'anypoint' else self.token}"}


@dataclass(frozen=True)
class Side:
    """A queue with all that hangs on it: what the paths of each site call them."""

    queue: str
    params: dict[str, dict[str, str]]
    marks: tuple[str, ...]


class World:
    """One tenant of a running server, through the key that may do everything there."""

    def __init__(self, server: Server, http: httpx.Client, tenant: str = "default") -> None:
        self.server = server
        self.http = http
        self.tenant = tenant
        self._operator = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
        made = server.credentials
        if tenant != "default":
            made = self.operate("POST", "/courier/v1/tenants", {"name": tenant})["credentials"]
        self.credentials: dict[str, Any] = made
        self.own = self.credential(EVERYTHING)

    def operate(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body, headers=self._operator)
        assert answer.status_code == 200, (method, path, answer.text)
        return answer.json()

    def credential(self, scopes: list[str], *targets: str) -> Credential:
        """A token and a connected app that may do the same."""
        wanted: dict[str, Any] = {"scopes": scopes}
        if targets:
            wanted["targets"] = list(targets)
        keys = f"/courier/v1/tenants/{self.tenant}/keys"
        name = f"key-{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        token = self.operate("POST", keys, {**wanted, "name": name})
        app = self.operate("POST", keys, {**wanted, "name": f"{name}-app", "kind": "connected_app"})
        asked = {"client_id": app["key"]["id"], "client_secret": app["token"], **GRANT}
        given = self.http.post("/accounts/api/v2/oauth2/token", json=asked)
        assert given.status_code == 200, given.text
        ids = (token["key"]["id"], app["key"]["id"])
        return Credential(token["token"], given.json()["access_token"], ids)

    def domain_key(self, side: Side) -> Credential:
        """A key for one domain, which only Discue makes."""
        own = [side.params["discue"]["domain_id"]]
        scopes = [{"resource": "domains", "access": "write", "targets": own}]
        made = self.call("discue", "POST", "/v1/api_keys", {"scopes": scopes})
        return Credential(made["api_key"], "", (names.read(made["id"]),))

    def call(self, site: str, method: str, path: str, body: Any = None) -> Any:
        headers = self.own.headers(site)
        answer = self.http.request(method, path, json=body, headers=headers)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    # --- paths ---

    @property
    def account(self) -> str:
        return str(self.credentials["cloudflare"]["account_id"])

    @property
    def region(self) -> dict[str, str]:
        anypoint = self.credentials["anypoint"]
        return {
            "organizationId": anypoint["organization_id"],
            "environmentId": anypoint["environment_id"],
            "regionId": anypoint["region"],
        }

    @property
    def _queues(self) -> str:
        return f"/client/v4/accounts/{self.account}/queues"

    @property
    def _environment(self) -> str:
        place = self.region
        return f"/organizations/{place['organizationId']}/environments/{place['environmentId']}"

    # --- one side ---

    def side(self, word: str) -> Side:
        """A queue with a consumer, subscription, exchange, listener, claim, messages and more."""
        name = f"{word}-{uuid.uuid4().hex[:12]}"
        queue = self.call("cloudflare", "POST", self._queues, {"queue_name": name})["result"]
        id = queue["queue_id"]
        cloudflare = {
            "account_id": self.account,
            "queue_id": id,
            "service": name,
            **self._consumption(id, name),
        }
        discue = self._discue(id, name)
        anypoint = {**self.region, **self._anypoint(name)}
        claims = f"/courier/v1/tenants/{self.tenant}/queues/{name}/claims/{name}"
        self.call("courier", "PUT", claims, {"count": 1, "lease_ms": HOUR_MS})
        courier = {
            "tenant": self.tenant,
            "queue": name,
            "listener": f"listener-{name}",
            "name": name,
            "worker": name,
            "key": discue["api_key_id"],
        }
        owned = [
            *(cloudflare[each] for each in ("queue_id", "consumer_id", "subscription_id")),
            *(anypoint[each] for each in ("exchangeId", "clientId")),
            *(value for each, value in discue.items() if each != "api_client_id"),
        ]
        params = {
            "cloudflare": cloudflare,
            "anypoint": anypoint,
            "discue": discue,
            "courier": courier,
            "console": {
                "queue": id,
                "message": self._message(id),
                "plan": self._plan(id),
                "exchange": self._exchange(name),
                "listener": names.read(discue["listener_id"]),
            },
        }
        return Side(name, params, (name, *owned))

    def _consumption(self, id: str, name: str) -> dict[str, str]:
        """A pull consumer, an event subscription and a lease, as Cloudflare has them."""
        at = f"{self._queues}/{id}"
        consumer = self.call("cloudflare", "POST", f"{at}/consumers", {"type": "http_pull"})
        subscriptions = f"/client/v4/accounts/{self.account}/event_subscriptions/subscriptions"
        wanted = {
            "name": f"subscription-{name}",
            "source": _KV,
            "events": ["namespace.created"],
            "destination": {"type": "queues.queue", "queue_id": id},
        }
        subscription = self.call("cloudflare", "POST", subscriptions, wanted)
        batch = {"messages": [{"body": f"body-{name}", "content_type": "text"}] * 8}
        self.call("cloudflare", "POST", f"{at}/messages/batch", batch)
        pulled = self.call("cloudflare", "POST", f"{at}/messages/pull", {"batch_size": 1})
        return {
            "consumer_id": consumer["result"]["consumer_id"],
            "subscription_id": subscription["result"]["id"],
            "lease_id": pulled["result"]["messages"][0]["lease_id"],
        }

    def _anypoint(self, name: str) -> dict[str, str]:
        """An exchange bound to the queue, a client app and a locked message."""
        region = f"/mq/admin/api/v1{self._environment}/regions/{self.region['regionId']}"
        exchange = f"exchange-{name}"
        self.call("anypoint", "PUT", f"{region}/destinations/exchanges/{exchange}", {})
        binding = f"{region}/bindings/exchanges/{exchange}/queues/{name}"
        self.call("anypoint", "PUT", binding)
        clients = f"/mq/admin/api/v1{self._environment}/clients"
        client = self.call("anypoint", "PUT", clients, {"name": f"client-{name}"})
        got = self.call(
            "anypoint",
            "GET",
            f"/api/v1{self._environment}/destinations/{name}/messages?pollingTime=0",
        )
        return {
            "destinationId": name,
            "queueId": name,
            "exchangeId": exchange,
            "messageId": got[0]["headers"]["messageId"],
            "lockId": got[0]["headers"]["lockId"],
            "clientId": client["clientId"],
        }

    def _discue(self, id: str, name: str) -> dict[str, str]:
        """A listener that is switched off, a message, an old schema, a domain and a key."""
        shown = names.shown(id)
        at = f"/v1/queues/{shown}"
        url = f"http://127.0.0.1:9/{name}"
        listener = {
            "name": f"listener-{name}",
            "notify_url": url,
            "liveness_url": url,
            "status": "disabled",
        }
        made = self.call("discue", "POST", f"{at}/listeners", listener)["listener"]
        schema = {f"field-{name}": {"type": "string"}}
        known = self.call("discue", "PUT", at, {"schema": schema})["queue"]
        self.call("discue", "PUT", at, {"schema": None})
        data = {"data": f"data-{name}", "name": f"message-{name}"}
        message = self.call("discue", "POST", f"{at}/messages", data)["message"]
        host = {"name": f"domain-{name}", "hostname": f"{name}.invalid", "port": 443}
        domain = self.call("discue", "POST", "/v1/domains", host)["domain"]
        key = self.call("discue", "POST", "/v1/api_keys", {"name": f"key-{name}"})
        return {
            "queue_id": shown,
            "listener_id": made["id"],
            "message_id": message["id"],
            "schema_id": known["schema_id"],
            "domain_id": domain["id"],
            "api_key_id": key["id"],
            "api_client_id": names.shown(self.account),
        }

    def _message(self, id: str) -> str:
        """The generated id of a message that stays on the queue."""
        found = self.call("console", "GET", f"/console/queues/{id}?order=oldest")
        rows = found["messages"]["rows"]
        return next(str(each["id"]) for each in rows[::-1] if len(each["id"]) == 32)

    def _exchange(self, name: str) -> str:
        found = self.call("console", "GET", f"/console?q=exchange-{name}")
        return str(found["rows"][0]["id"])

    def _plan(self, id: str) -> str:
        """A plan to delete the queue's messages."""
        asked = {"action": "purge", "queue": id}
        made = self.http.post("/console/plans", json=asked, headers=self.own.headers("console"))
        return str(made.headers["location"]).rpartition("/")[2]

    def nobody(self, side: Side) -> Side:
        """The same place in every path, of things that do not exist."""
        name = f"nobody-{uuid.uuid4().hex[:12]}"
        unknown = "c0" + uuid.uuid4().hex[:30]
        kept = ("account_id", "api_client_id", "tenant", *self.region)
        named = ("service", "destinationId", "queueId", "queue", "listener", "name", "worker")

        def other(site: str, param: str, value: str) -> str:
            if param in kept:
                return value
            if param in named and site != "console":
                return name
            if param == "exchangeId":
                return f"exchange-{name}"
            return names.shown(unknown) if site == "discue" else unknown

        params = {
            site: {param: other(site, param, value) for param, value in found.items()}
            for site, found in side.params.items()
        }
        return Side(name, params, (name, unknown, names.shown(unknown)))
