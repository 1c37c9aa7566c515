"""How each route is aimed at one side: its path, query and body. One that is missing fails."""

import io
import re
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa

from tests.conformance.reach.tables import Place
from tests.conformance.reach.world import Credential, Side

ARROW = "application/vnd.apache.arrow.stream"
_PARAM = re.compile(r"{(\w+)}")
Body = Callable[[Side], Any]


def _new(_: Side) -> dict[str, str]:
    return {"name": f"new-{uuid.uuid4().hex[:12]}"}


def _nothing(_: Side) -> dict[str, Any]:
    return {}


def _lock(side: Side) -> dict[str, Any]:
    own = side.params["anypoint"]
    return {"messageId": own["messageId"], "lockId": own["lockId"]}


def _rows(_: Side) -> bytes:
    table = pa.table({"body": ["row"]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _rule(_: Side) -> dict[str, Any]:
    rule = {"propertyName": "n", "propertyType": "STRING", "matcherType": "EQ", "value": "x"}
    return {"routingRules": [rule]}


def _subscription(side: Side) -> dict[str, Any]:
    return {
        "source": {"type": "r2"},
        "events": ["bucket.created"],
        "destination": {"type": "queues.queue", "queue_id": side.params["cloudflare"]["queue_id"]},
    }


def _listener(side: Side) -> dict[str, Any]:
    url = "http://127.0.0.1:9/new"
    return {**_new(side), "notify_url": url, "liveness_url": url, "status": "disabled"}


# Site and operation -> what is sent. Everything that takes a body is here.
BODIES: dict[tuple[str, str], Body] = {
    ("cloudflare", "create_queue"): lambda side: {"queue_name": _new(side)["name"]},
    ("cloudflare", "replace_queue"): lambda _: {"settings": {"delivery_delay": 1}},
    ("cloudflare", "edit_queue"): lambda _: {"settings": {"delivery_delay": 1}},
    ("cloudflare", "start_purge"): _nothing,
    ("cloudflare", "create_consumer"): lambda _: {"type": "http_pull"},
    ("cloudflare", "put_consumer"): lambda _: {"type": "http_pull"},
    ("cloudflare", "push"): lambda _: {"body": "pushed"},
    ("cloudflare", "push_batch"): lambda _: {"messages": [{"body": "pushed"}]},
    ("cloudflare", "pull"): lambda _: {"batch_size": 1},
    ("cloudflare", "ack"): lambda side: {
        "acks": [{"lease_id": side.params["cloudflare"]["lease_id"]}]
    },
    ("cloudflare", "peek"): _nothing,
    ("cloudflare", "purge_refs"): lambda _: {"refs": [{"ref": "unknown"}]},
    ("cloudflare", "create_subscription"): _subscription,
    ("cloudflare", "edit_subscription"): lambda _: {"enabled": False},
    ("anypoint", "put_queue"): _nothing,
    ("anypoint", "patch_queue"): lambda _: {"defaultTtl": 600_000},
    ("anypoint", "patch_queue_v2"): lambda _: {"defaultTtl": 600_000},
    ("anypoint", "put_fallback"): lambda _: {"fallbackEnabled": True},
    ("anypoint", "put_exchange"): _nothing,
    ("anypoint", "patch_exchange"): lambda _: {"encrypted": False},
    ("anypoint", "put_rules"): _rule,
    ("anypoint", "create_client"): _new,
    ("anypoint", "publish"): lambda _: {"body": "published"},
    ("anypoint", "publish_batch"): lambda _: [{"body": "published"}],
    ("anypoint", "ack"): _lock,
    ("anypoint", "ack_batch"): lambda side: [_lock(side)],
    ("anypoint", "nack_batch"): lambda side: [_lock(side)],
    ("anypoint", "extend"): lambda _: {"ttl": 60},
    ("anypoint", "extend_batch"): lambda side: [{**_lock(side), "ttl": 60}],
    ("discue", "create_queue"): _new,
    ("discue", "update_queue"): lambda _: {"schema": None},
    ("discue", "create_listener"): _listener,
    ("discue", "update_listener"): lambda _: {"timeout_ms": 2_000},
    ("discue", "backfill"): _nothing,
    ("discue", "rotate_secret"): _nothing,
    ("discue", "add_message"): lambda _: {"data": "added"},
    ("discue", "rename_message"): _new,
    ("discue", "create_key"): _nothing,
    ("discue", "update_key"): lambda _: {"status": "disabled"},
    ("discue", "rotate_key"): _nothing,
    ("discue", "create_client"): _nothing,
    ("discue", "rename_client"): _nothing,
    ("discue", "create_domain"): lambda side: {
        **_new(side),
        "hostname": f"{_new(side)['name']}.invalid",
        "port": 443,
    },
    ("discue", "update_domain"): _new,
    ("console", "sign_out"): _nothing,
    ("console", "make_link"): _nothing,
    ("console", "create_queue"): _new,
    ("console", "say_hello"): _nothing,
    ("console", "pause_queue"): _nothing,
    ("console", "resume_queue"): _nothing,
    ("console", "freeze_queue"): _nothing,
    ("console", "unfreeze_queue"): _nothing,
    ("console", "publish"): lambda _: {"body": "{}"},
    ("console", "change_settings"): lambda _: {
        "lease": "30s",
        "delay": "0s",
        "retry": "0s",
        "retention": "4d",
    },
    ("console", "download"): lambda _: {"which": "all"},
    ("console", "create_listener"): lambda side: {
        **_new(side),
        "url": "http://127.0.0.1:9/listener",
    },
    ("console", "change_listener"): lambda _: {"action": "disable"},
    ("console", "change_exchange"): lambda side: {"action": "bind", "queue": side.queue},
    ("console", "connect"): lambda side: {
        **_new(side),
        "action": "worker",
        "url": "http://127.0.0.1:9/worker",
    },
    ("console", "create_key"): lambda side: {**_new(side), "scopes": "read"},
    ("console", "create_plan"): lambda side: {
        "action": "purge",
        "queue": side.params["console"]["queue"],
    },
    ("console", "ask_lake"): _nothing,
    ("console", "run_plan"): _nothing,
    ("console", "stop_plan"): _nothing,
    ("console", "undo_plan"): _nothing,
    ("courier", "claim_messages"): lambda _: {"count": 1, "lease_ms": 60_000},
    ("courier", "extend_claim"): lambda _: {"lease_ms": 60_000},
    ("courier", "publish_rows"): _rows,
    ("courier", "redrive"): _nothing,
    ("courier", "freeze"): lambda _: {"frozen": True},
    ("courier", "enable_listener"): lambda _: {"enabled": False},
    ("courier", "backfill_listener"): _nothing,
    ("courier", "create_listener"): lambda side: {
        **_new(side),
        "url": "http://127.0.0.1:9/listener",
    },
    ("courier", "send_event"): lambda _: {
        "source": {"type": "kv"},
        "event": "namespace.created",
        "payload": {},
    },
    ("courier", "commit_pipeline"): lambda _: {"offset": 0},
    ("courier", "create_tenant"): _new,
    ("courier", "create_key"): lambda side: {**_new(side), "scopes": ["write"]},
    ("courier", "rotate_key"): _nothing,
    ("courier", "put_worker"): lambda _: {"url": "http://127.0.0.1:9/worker"},
}
# Site and operation -> query parameters that it does not do without, or that name the side.
QUERIES: dict[tuple[str, str], Callable[[Side], dict[str, Any]]] = {
    ("anypoint", "get"): lambda _: {"pollingTime": 0},
    ("anypoint", "current"): lambda side: {"destinationIds": side.queue},
    ("anypoint", "queue_series"): lambda _: {"period": 60},
    ("anypoint", "exchange_series"): lambda _: {"period": 60},
    ("anypoint", "organization_use"): lambda _: {"period": "1day"},
    ("anypoint", "environment_use"): lambda _: {"period": "1day"},
    ("courier", "count_rows"): lambda _: {"once": "key"},
    # Of a long list the first page is shown; the first side has the oldest messages.
    ("console", "show_queues"): lambda _: {"sort": "oldest"},
    ("console", "follow"): lambda _: {"sort": "oldest"},
    ("console", "find"): lambda _: {"q": "-"},
    ("console", "set_back"): lambda _: {"event": "1"},
    ("cloudflare", "list_subscriptions"): lambda _: {"per_page": 100},
    ("discue", "list_queues"): lambda _: {"per_page": 100},
    ("discue", "list_events"): lambda _: {"limit": 1_000},
}


def path(place: Place, side: Side) -> str:
    """The route's path at that side; a variable part that is not known raises KeyError."""
    known = side.params[place.site]
    return place.prefix + _PARAM.sub(lambda match: known[match[1]], place.route.path)


def send(http: httpx.Client, place: Place, side: Side, by: Credential) -> httpx.Response:
    operation = (place.site, place.route.operation)
    headers = by.headers(place.site)
    sent: dict[str, Any] = {}
    if place.route.body is bytes:
        sent["content"] = BODIES[operation](side)
        headers["Content-Type"] = ARROW
    elif place.route.body is not None:
        sent["json"] = BODIES[operation](side)
    query = QUERIES[operation](side) if operation in QUERIES else {}
    return http.request(
        place.route.method, path(place, side), params=query, headers=headers, **sent
    )
