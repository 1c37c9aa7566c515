"""The official npm SDK works unchanged, with only its URL changed."""

import json
from pathlib import Path

import pytest

from tests.outside.node import HERE, installed, run_node
from tests.server import Server


@pytest.mark.slow
def test_npm_sdk_goes_a_whole_round(server: Server, tmp_path: Path, queue_name: str) -> None:
    account = server.credentials["cloudflare"]
    ran = run_node(
        HERE / "npm_sdk.cjs",
        account["account_id"],
        queue_name,
        directory=tmp_path,
        env={
            "NODE_PATH": str(installed("cloudflare").parent),
            "CLOUDFLARE_BASE_URL": account["base_url"],
            "CLOUDFLARE_API_TOKEN": account["api_token"],
        },
    )
    assert ran.status == 0, ran.out
    seen = json.loads(ran.out)
    oldest_ms = seen["metrics"].pop("oldest_message_timestamp_ms")
    assert oldest_ms > 0
    assert queue_name in seen.pop("listed")
    assert seen == {
        "bodies": ["one", "eyJ0d28iOjJ9", "three"],
        "settled": {"ackCount": 2, "retryCount": 1, "warnings": {}},
        "again": [{"body": "three", "attempts": 2}],
        "metrics": {"backlog_count": 1, "backlog_bytes": 5},
        "subscriptions": ["blog", "shop", "wiki"],
        "deleted": True,
        "missing": {"kind": "NotFoundError", "status": 404, "code": 11000},
    }
