"""Client apps: made, listed, given another secret, deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.anypoint.answers import admin_fail, ok
from tests.wire.anypoint.destination import Queue, new_id, new_name, segment
from tests.wire.anypoint.environment import App, Environment

UNKNOWN_ID = "c0" + "5" * 30


def call(env: Environment, method: str, path: str = "", json: Any = None, **request: Any) -> Any:
    return env.call(
        method, f"{env.admin_path}/clients{path}", json, token=env.tokens.user, **request
    )


def listed(env: Environment) -> dict[str, dict[str, str]]:
    """Every app by its id; the shape of each is checked."""
    found = ok(call(env, "GET"))
    assert isinstance(found, list)
    for app in found:
        check(app)
    return {app["clientId"]: app for app in found}


def check(app: Any) -> dict[str, str]:
    assert set(app) == {"name", "clientId", "clientSecret"}, app
    assert all(isinstance(value, str) and value for value in app.values()), app
    checked: dict[str, str] = app
    return checked


def authorize(env: Environment, app: dict[str, str]) -> Any:
    form = App(app["name"], app["clientId"], app["clientSecret"]).form
    return env.http.post("/api/v1/authorize", data=form)


def test_an_environment_comes_with_one_app(new_environment: Callable[..., Environment]) -> None:
    env = new_environment()
    (app,) = listed(env).values()
    assert ok(authorize(env, app))["access_token"] == env.tokens.app


def test_a_new_app_is_listed_and_works(env: Environment, queue: Queue) -> None:
    name = new_name("app")
    app = check(ok(call(env, "PUT", json={"name": name})))
    assert app["name"] == name
    assert listed(env)[app["clientId"]] == app
    token = ok(authorize(env, app))["access_token"]
    assert queue.put(new_id(), {"body": "a"}, token=token).status_code == 201


@pytest.mark.parametrize("name", ["a.b.c", "with blank", "é", "x" * 100, "a/b", "1", "a_b@c"])
def test_a_name_may_be_what_it_likes(env: Environment, name: str) -> None:
    name = f"{name} {new_name()}"
    app = check(ok(call(env, "PUT", json={"name": name})))
    assert app["name"] == name
    assert call(env, "DELETE", f"/{app['clientId']}").status_code == 200


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": None}, {"name": 5}, [], "x"])
def test_an_app_needs_a_name(env: Environment, body: Any) -> None:
    before = listed(env)
    admin_fail(call(env, "PUT", json=body), 400)
    assert listed(env) == before


@pytest.mark.parametrize("content", [b"", b"{"])
def test_an_app_needs_a_body(env: Environment, content: bytes) -> None:
    admin_fail(call(env, "PUT", content=content), 400)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"anything"])
def test_an_app_gets_another_secret(
    env: Environment, new_app: Callable[[], App], content: bytes | None
) -> None:
    app = new_app()
    answer = check(ok(call(env, "POST", f"/{app.id}", content=content)))
    assert (answer["name"], answer["clientId"]) == (app.name, app.id)
    assert answer["clientSecret"] != app.secret
    assert listed(env)[app.id] == answer
    assert env.http.post("/api/v1/authorize", data=app.form).status_code == 401
    ok(authorize(env, answer))


def test_a_deleted_app_is_gone(env: Environment, new_app: Callable[[], App]) -> None:
    app = new_app()
    response = call(env, "DELETE", f"/{app.id}")
    assert response.status_code == 200, response.text
    assert app.id not in listed(env)
    assert env.http.post("/api/v1/authorize", data=app.form).status_code == 401
    admin_fail(call(env, "DELETE", f"/{app.id}"), 404)
    admin_fail(call(env, "POST", f"/{app.id}"), 404)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("id", [UNKNOWN_ID, "x", "é", "a/b", "a" * 300])
def test_an_unknown_app_is_not_found(env: Environment, method: str, id: str) -> None:
    admin_fail(call(env, method, f"/{segment(id)}"), 404)
