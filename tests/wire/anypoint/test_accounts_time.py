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


def test_an_unused_token_of_an_app_lasts_an_hour(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    token = clocked.env.tokens.app
    clocked.advance(minutes=60)
    fail(queue.poll(pollingTime=0), 401)
    assert authorize(clocked) != token


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


@pytest.mark.parametrize("minutes", [1, 4, 6, 30])
def test_the_hour_begins_with_the_last_use(clocked: Timed, minutes: int) -> None:
    queue = Queue.create(clocked.env)
    clocked.advance(minutes=minutes)
    assert queue.poll(pollingTime=0).status_code == 204
    clocked.advance(minutes=59)
    assert queue.poll(pollingTime=0).status_code == 204
    clocked.advance(minutes=60)
    fail(queue.poll(pollingTime=0), 401)


def test_an_app_whose_token_has_expired_gets_another_that_works(clocked: Timed) -> None:
    queue = Queue.create(clocked.env)
    clocked.advance(hours=2)
    token = authorize(clocked)
    assert queue.env.broker("GET", queue.at("?pollingTime=0"), token=token).status_code == 204
    fail(queue.poll(pollingTime=0), 401)


def test_every_token_that_was_given_out_works(clocked: Timed) -> None:
    http, anypoint = clocked.env.http, clocked.anypoint
    app = {**anypoint["connected_app"], **GRANT}
    for path, asked in (
        ("/accounts/login", anypoint["user"]),
        ("/accounts/api/v2/oauth2/token", app),
    ):
        tokens = [http.post(path, json=asked).json()["access_token"] for _ in range(3)]
        assert [regions(clocked, token) for token in tokens] == [200] * 3
