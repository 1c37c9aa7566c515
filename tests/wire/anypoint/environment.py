"""An environment as its clients reach it: the paths of the four APIs, and tokens for them."""

from dataclasses import dataclass, replace
from typing import Any

import httpx

ADMIN = "/mq/admin/api/v1"
ADMIN_2 = "/mq/admin/api/v2"
BROKER = "/api/v1"
STATS = "/mq/stats/api/v1"
GRANT = {"grant_type": "client_credentials"}


def root_client(url: str) -> httpx.Client:
    """A client of the whole server that carries no credential."""
    return httpx.Client(base_url=url, timeout=30.0, trust_env=False, verify=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Tokens:
    """One token of each kind."""

    app: str
    connected_app: str
    user: str

    @classmethod
    def of(cls, http: httpx.Client, anypoint: dict[str, Any]) -> "Tokens":
        app = {name: anypoint[name] for name in ("client_id", "client_secret")}
        return cls(
            app=_token(http.post(f"{BROKER}/authorize", data={**app, **GRANT})),
            connected_app=connected_app_token(http, anypoint["connected_app"]),
            user=_token(http.post("/accounts/login", json=anypoint["user"])),
        )


def connected_app_token(http: httpx.Client, app: dict[str, str]) -> str:
    return _token(http.post("/accounts/api/v2/oauth2/token", json={**app, **GRANT}))


def _token(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    token: str = response.json()["access_token"]
    return token


@dataclass(frozen=True)
class App:
    """A client app as the admin API shows it."""

    name: str
    id: str
    secret: str

    @property
    def form(self) -> dict[str, str]:
        """What it asks for a token with."""
        return {"client_id": self.id, "client_secret": self.secret, **GRANT}


@dataclass(frozen=True)
class Environment:
    """One environment. Messages go with the app's token, all else with the user's.

    `host` is what the client believes to call; upstream it names the region.
    """

    http: httpx.Client
    organization: str
    id: str
    region: str
    tokens: Tokens
    host: str | None = None

    @classmethod
    def of(cls, http: httpx.Client, credentials: dict[str, Any]) -> "Environment":
        anypoint = credentials["anypoint"]
        return cls(
            http,
            anypoint["organization_id"],
            anypoint["environment_id"],
            anypoint["region"],
            Tokens.of(http, anypoint),
        )

    def in_region(self, region: str) -> "Environment":
        return replace(self, region=region, host=f"mq-{region}.localhost")

    @property
    def path(self) -> str:
        return f"/organizations/{self.organization}/environments/{self.id}"

    @property
    def admin_path(self) -> str:
        """What the spec calls A."""
        return ADMIN + self.path

    @property
    def region_path(self) -> str:
        """What the spec calls R."""
        return f"{self.admin_path}/regions/{self.region}"

    @property
    def stats_path(self) -> str:
        """What the spec calls T."""
        return f"{STATS}{self.path}/regions/{self.region}"

    @property
    def broker_path(self) -> str:
        return f"{BROKER}{self.path}/destinations"

    def admin(
        self, method: str, path: str, json: Any = None, *, token: str | None = None, **request: Any
    ) -> httpx.Response:
        """Call below the region; `path` begins with /destinations or /bindings."""
        return self.call(
            method, self.region_path + path, json, token=token or self.tokens.user, **request
        )

    def broker(
        self, method: str, path: str, json: Any = None, *, token: str | None = None, **request: Any
    ) -> httpx.Response:
        """Call below the destinations; `path` begins with the id of one."""
        return self.call(
            method, f"{self.broker_path}/{path}", json, token=token or self.tokens.app, **request
        )

    def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        token: str,
        headers: dict[str, str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        sent = {**bearer(token), **(headers or {})}
        if self.host is not None:
            sent.setdefault("Host", self.host)
        if json is not None:
            request["json"] = json
        return self.http.request(method, path, headers=sent, **request)
