"""Tokens of the Anypoint APIs that are wrong, broken or too many."""

import json

import pytest

from tests.attack.doors import DOORS, ask, given, good
from tests.attack.environment import Environment, Spot, accepted, body, complained, refused
from tests.attack.peer import Answer, Client, Peer

ODD_TOKENS = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer    ",
    "bearer",
    "bearer=",
    "Basic dXNlcjpwYXNz",
    "Token abc",
    "Bearer a b",
    "Bearer \xff\xfe",
    "bearer\xff\xfe",
    "Bearer \xe2\x82\xac",
    "Bearer " + "a" * 50_000,
    "bearer" + "a" * 50_000,
    "Bearer null",
    "Bearer ..",
    "Bearer ' or 1=1--",
    "Bearer %00",
    "Digest username=x",
    "\xff",
]


def with_token(client: Client, credential: str, method: str, path: str, data: bytes) -> Answer:
    """One request with this Authorization header, as it stands."""
    head = client.head(method, path, f"Content-Length: {len(data)}")
    bearer = f"Authorization: Bearer {client.token}".encode()
    with Peer(client.server) as peer:
        header = f"Authorization: {credential}".encode("latin-1")
        peer.send(head.replace(bearer, header) + b"\r\n" + data)
        answer = peer.answer()
        assert answer is not None, f"no answer to {credential[:40]}"
        return answer


@pytest.mark.parametrize("credential", ODD_TOKENS, ids=lambda credential: repr(credential[:20]))
def test_odd_token_is_refused(spot: Spot, credential: str) -> None:
    own = spot.environment
    path = f"/{spot.queue}/messages/m1"
    refused(with_token(own.broker, credential, "PUT", path, b"{}"), 401)
    complained(with_token(own.admin, credential, "GET", "/destinations", b""), 401)
    complained(with_token(own.stats, credential, "GET", "/queues?destinationIds=a", b""), 401)
    answer = with_token(own.accounts, credential, "GET", "/api/me", b"")
    assert (answer.status, answer.body) == (401, b"Unauthorized")
    assert spot.backlog() == 0


def test_token_changed_in_any_place_is_refused(spot: Spot) -> None:
    path = f"/{spot.queue}/messages/m1"
    for client in (spot.environment.broker, spot.environment.admin):
        token = client.token
        changed = [
            token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :]
            for place in range(len(token))
        ]
        changed += [
            token[:-1],
            token + "a",
            token.upper(),
            token.lower(),
            token + "=",
            token + "%00",
        ]
        for each in changed:
            answer = with_token(spot.broker, f"Bearer {each}", "PUT", path, b"{}")
            refused(answer, 401)
    assert spot.backlog() == 0


def test_token_is_good_in_every_spelling_of_its_scheme(spot: Spot) -> None:
    token = spot.broker.token
    path = f"/{spot.queue}/messages"
    for scheme in ("Bearer ", "bearer ", "BEARER ", "Bearer   ", "bearer", "Bearer"):
        answer = with_token(spot.broker, f"{scheme}{token}", "PUT", f"{path}/m1", b"{}")
        accepted(answer, 201)


def test_two_tokens_are_not_better_than_one(spot: Spot) -> None:
    path = f"/{spot.queue}/messages/m1"
    own = spot.environment
    wrong = "Authorization: Bearer wrong"
    for headers in ((wrong,), (wrong, wrong)):
        answer = own.broker.ask("PUT", path, b"{}", *headers)
        assert answer.status in (201, 400, 401), answer
    nobody = Client(own.server, own.broker.root, "wrong")
    refused(nobody.ask("PUT", path, b"{}", wrong), 400, 401)


def test_token_in_query_or_body_is_none(spot: Spot) -> None:
    own = spot.environment
    token = own.broker.token
    with Peer(own.server) as peer:
        path = f"{own.broker.root}/{spot.queue}/messages/m1?access_token={token}"
        data = json.dumps({"access_token": token}).encode()
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        peer.send(head.encode() + data)
        refused(peer.answer(), 401)
    assert spot.backlog() == 0


def test_very_many_sessions_leave_the_last_ones_good(neighbour: Environment) -> None:
    """Users get a token each time; the oldest go, and nothing grows without end."""
    door = DOORS[4]
    tokens = [given(ask(neighbour, door, body(good(neighbour, door)))) for _ in range(150)]
    assert len(set(tokens)) == len(tokens)
    for token in tokens[-50:]:
        client = Client(neighbour.server, neighbour.admin.root, token)
        accepted(client.ask("GET", "/destinations?limit=1"))
    oldest = Client(neighbour.server, neighbour.admin.root, tokens[0])
    assert oldest.ask("GET", "/destinations?limit=1").status in (200, 401)
    neighbour.admin.token = neighbour.stats.token = neighbour.accounts.token = tokens[-1]
