"""Trading an id and a secret for a token."""

from typing import Any

import msgspec
from msgspec.structs import replace

from courier.core import keys
from courier.core.errors import InvalidRequest, Unauthenticated
from courier.core.keys import Proof
from courier.core.sessions import SESSION_MS
from courier.core.types import SECOND_MS, Tenant
from courier.dialects.anypoint import names
from courier.dialects.anypoint.credentials import GivenCredentials, basic
from courier.dialects.anypoint.site import AnypointServices
from courier.web import Call, Route


class SimpleClient(msgspec.Struct):
    envId: str
    orgId: str


class Token(msgspec.Struct, omit_defaults=True):
    access_token: str
    token_type: str
    simple_client: SimpleClient | msgspec.UnsetType = msgspec.UNSET
    expires_in: int | msgspec.UnsetType = msgspec.UNSET
    redirectUrl: str | msgspec.UnsetType = msgspec.UNSET


async def key_of_client(services: AnypointServices, call: Call, kind: str) -> Proof:
    """The app that the credentials are of; raises Unauthenticated."""
    asked: GivenCredentials = call.body
    id, secret = asked.client_id, asked.client_secret
    if not id and not secret:
        id, secret = basic(call.request)
    if not id or not secret:
        raise Unauthenticated("missing")
    if asked.grant_type != "client_credentials":
        raise InvalidRequest("grant_type", "must be client_credentials")
    return await _checked(services, secret, kind, id=id)


async def key_of_user(services: AnypointServices, call: Call) -> Proof:
    asked: GivenCredentials = call.body
    if not asked.username or not asked.password:
        raise Unauthenticated("missing")
    return await _checked(services, asked.password, "user", name=asked.username)


async def _checked(services: AnypointServices, secret: str, kind: str, **wanted: str) -> Proof:
    ring = keys.Keyring(services.reads.records)
    proof = await ring.prove(secret, now_ms=services.clock.now_ms(), kind=kind)
    if any(getattr(proof.key, field) != value for field, value in wanted.items()):
        raise keys.refused(proof.key, "wrong_name")
    return proof


async def _open(services: AnypointServices, call: Call, proof: Proof) -> str:
    actor = replace(call.actor, id=proof.key.id)
    return await services.admin.sessions.open(proof.key, until_ms=proof.until_ms, actor=actor)


def app_token(
    services: AnypointServices, path: str, *, with_client: bool, contract: str = ""
) -> Route:
    """The route that gives an app its token."""

    async def authorize(call: Call) -> Token:
        proof = await key_of_client(services, call, "app")
        token = Token(await _open(services, call, proof), "bearer")
        if with_client:
            tenant = services.reads.records.get(Tenant, proof.key.tenant)
            if tenant is None:
                raise Unauthenticated("unknown")
            token.simple_client = SimpleClient(
                names.environment_id(tenant), names.organization_id(tenant)
            )
        return token

    return _route(path, authorize, "A token for a client app", contract)


def connected_app_token(services: AnypointServices, path: str) -> Route:
    async def authorize_connected_app(call: Call) -> Token:
        proof = await key_of_client(services, call, "connected_app")
        token = await _open(services, call, proof)
        return Token(token, "bearer", expires_in=SESSION_MS // SECOND_MS)

    return _route(path, authorize_connected_app, "A token for a connected app")


def user_token(services: AnypointServices, path: str, *, contract: str = "") -> Route:
    async def log_in(call: Call) -> Token:
        token = await _open(services, call, await key_of_user(services, call))
        return Token(token, "bearer", redirectUrl="/home/")

    return _route(path, log_in, "A token for a user", contract)


def _route(path: str, handler: Any, summary: str, contract: str = "") -> Route:
    return Route(
        "POST",
        path,
        handler,
        None,
        "public",
        summary,
        body=GivenCredentials,
        result=Token,
        family="tokens",
        contract=contract,
    )
