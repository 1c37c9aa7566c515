"""Tokens of the Anypoint APIs that are wrong, broken or too many."""

from tests.attack.doors import DOORS, ask, given, good
from tests.attack.environment import Environment, Spot, accepted, body, refused
from tests.attack.peer import Answer, Client, Peer


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
