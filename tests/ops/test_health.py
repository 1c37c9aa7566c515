"""What monitoring asks."""

import httpx

from courier.ids import new_id
from tests.server import Server


def get(server: Server, path: str, **headers: str) -> httpx.Response:
    return httpx.get(server.url + path, trust_env=False, verify=False, headers=headers)


def bearer(server: Server, *scopes: str, tenant: str = "operator") -> dict[str, str]:
    """The header of a new key with these scopes."""
    body = {"name": new_id(), "scopes": scopes}
    made = server.operate("POST", f"/courier/v1/tenants/{tenant}/keys", json=body)
    return {"Authorization": f"Bearer {made.raise_for_status().json()['token']}"}


def test_health_and_readiness_need_no_key(server: Server) -> None:
    assert get(server, "/health").json() == {"status": "up"}
    assert get(server, "/ready").json() == {"status": "ready"}


def test_metrics_count_requests_backlog_leases_journal_and_commits(
    server: Server, http: httpx.Client, queue_name: str
) -> None:
    queue = http.post("/queues", json={"queue_name": queue_name}).json()["result"]["queue_id"]
    http.post(f"/queues/{queue}/consumers", json={"type": "http_pull"})
    messages = [{"body": "12345", "content_type": "text"}, {"body": "1", "delay_seconds": 60}]
    http.post(f"/queues/{queue}/messages/batch", json={"messages": messages})
    http.post(f"/queues/{queue}/messages/pull", json={})
    answer = get(server, "/metrics", **bearer(server, "metrics"))
    assert answer.headers["content-type"].startswith("text/plain")
    lines = dict(
        line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")
    )
    label = f'{{queue="{queue_name}",tenant="default"}}'
    assert lines[f"courier_backlog_messages{label}"] == "2.0"
    assert lines[f"courier_backlog_bytes{label}"] == "8.0"
    assert lines[f"courier_leases{label}"] == "1.0"
    assert lines[f"courier_delayed{label}"] == "1.0"
    assert float(lines[f"courier_oldest_age_seconds{label}"]) < 60
    pushed = 'courier_requests_total{operation="push_batch",site="cloudflare",status="200"}'
    assert float(lines[pushed]) >= 1
    timed = 'courier_request_seconds_count{operation="push_batch",site="cloudflare"}'
    assert float(lines[timed]) >= 1
    assert float(lines["courier_journal_bytes"]) > 0
    commits = float(lines["courier_store_commits_total"])
    assert 0 < commits <= float(lines["courier_store_committed_calls_total"])


def test_metrics_need_a_key_of_the_operator_for_them(server: Server) -> None:
    assert get(server, "/metrics").status_code == 401
    refused = (bearer(server, "journal"), bearer(server, "metrics", "read", tenant="default"))
    for headers in refused:
        assert get(server, "/metrics", **headers).status_code == 403
    token = f"Bearer {server.credentials['admin']['token']}"
    assert get(server, "/metrics", Authorization=token).status_code == 200
    only = bearer(server, "metrics", tenant="operator")
    assert get(server, "/metrics", **only).status_code == 200
    assert get(server, "/courier/v1/tenants", **only).status_code == 403
    assert get(server, "/journal", **only).status_code == 403


def test_documents_are_sent_once_to_those_who_keep_them(server: Server) -> None:
    for path in ("/client/v4/openapi.json", "/client/v4/docs", "/v1/openapi.json", "/api/v1/docs"):
        version = get(server, path).headers["etag"]
        known = get(server, path, **{"If-None-Match": version})
        assert (known.status_code, known.content) == (304, b"")


def test_the_api_describes_itself_to_people_and_tools(server: Server) -> None:
    page = get(server, "/client/v4/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/client/v4/accounts/{account_id}/queues/{queue_id}/messages/pull" in page.text
    document = get(server, "/client/v4/openapi.json").json()
    operations = [method for path in document["paths"].values() for method in path]
    assert len(operations) == 25 + 5
