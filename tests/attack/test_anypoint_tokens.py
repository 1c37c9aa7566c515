"""Tokens of the Anypoint APIs that are wrong, broken or too many."""

from tests.attack.doors import DOORS, ask, given, good
from tests.attack.environment import Environment, accepted, body
from tests.attack.peer import Client


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
