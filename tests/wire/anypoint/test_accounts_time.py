"""How long tokens last: an hour, and a client app's for an hour after its last use."""

import pytest

from tests.wire.anypoint.answers import fail, ok
from tests.wire.anypoint.destination import Queue
from tests.wire.anypoint.environment import GRANT
from tests.wire.anypoint.timed import Timed


def authorize(clocked: Timed) -> str:
    """The app's token as the server gives it now."""
    app = {name: clocked.anypoint[name] for name in ("client_id", "client_secret")}
    answer = ok(clocked.env.http.post("/api/v1/authorize", data={**app, **GRANT}))
    token: str = answer["access_token"]
    return token


def regions(clocked: Timed, token: str) -> int:
    """The status that a token gets for a question that needs no scope."""
    env = clocked.env
    return env.call("GET", env.admin_path + "/regions", token=token).status_code


@pytest.mark.parametrize("kind", ["user", "connected_app"])
def test_a_token_of_the_account_lasts_an_hour_however_much_it_is_used(
    clocked: Timed, kind: str
) -> None:
    token = getattr(clocked.env.tokens, kind)
    for _ in range(59):
        assert regions(clocked, token) == 200
        clocked.advance(minutes=1)
    assert regions(clocked, token) == 200
    clocked.advance(minutes=1)
    assert regions(clocked, token) == 401


def test_every_use_of_an_apps_token_gives_it_another_hour(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    token = clocked.env.tokens.app
    for _ in range(5):
        clocked.advance(minutes=59)
        assert queue.poll(pollingTime=0).status_code == 204
    clocked.advance(minutes=59)
    assert authorize(clocked) == token, "asking for it is a use as well"
    clocked.advance(minutes=59)
    assert queue.poll(pollingTime=0).status_code == 204
    clocked.advance(minutes=60)
    fail(queue.poll(pollingTime=0), 401)
