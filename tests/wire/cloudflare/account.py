"""An account as its clients reach it."""

from typing import Any

import httpx


def account_client(credentials: dict[str, Any], *, token: str | None = None) -> httpx.Client:
    """A client at the root of the account these credentials are for."""
    account = credentials["cloudflare"]
    return httpx.Client(
        base_url=f"{account['base_url']}/accounts/{account['account_id']}",
        headers={"Authorization": f"Bearer {token or account['api_token']}"},
        timeout=30.0,
        trust_env=False,
        verify=False,
    )
