"""Trading a client app's id and secret for a token, and what the token opens."""

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.wire.anypoint.answers import fail, ok
from tests.wire.anypoint.destination import Queue, new_id
from tests.wire.anypoint.environment import GRANT, App, Environment, Tokens

AUTHORIZE = "/api/v1/authorize"
ADMIN_AUTHORIZE = "/mq/admin/api/v1/authorize"


def basic(id: str, secret: str) -> dict[str, str]:
    text = base64.b64encode(f"{id}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def as_form(app: App) -> dict[str, Any]:
    return {"data": app.form}


def as_multipart(app: App) -> dict[str, Any]:
    return {"files": {name: (None, value) for name, value in app.form.items()}}


def as_json(app: App) -> dict[str, Any]:
    return {"json": app.form}


def as_json_without_content_type(app: App) -> dict[str, Any]:
    return {"content": json.dumps(app.form).encode()}


def as_basic_and_form(app: App) -> dict[str, Any]:
    return {"data": GRANT, "headers": basic(app.id, app.secret)}


def as_basic_and_json(app: App) -> dict[str, Any]:
    return {"json": GRANT, "headers": basic(app.id, app.secret)}


def as_form_with_charset(app: App) -> dict[str, Any]:
    kind = "application/x-www-form-urlencoded; charset=UTF-8"
    return {"data": app.form, "headers": {"Content-Type": kind}}


FORMS = [
    as_form,
    as_multipart,
    as_json,
    as_json_without_content_type,
    as_basic_and_form,
    as_basic_and_json,
    as_form_with_charset,
]


@pytest.fixture(scope="module")
def app(new_app: Callable[[], App]) -> App:
    return new_app()


@pytest.mark.parametrize("form", FORMS)
def test_an_app_gets_its_token_however_it_asks(
    http: httpx.Client, env: Environment, app: App, form: Callable[[App], dict[str, Any]]
) -> None:
    answer = ok(http.post(AUTHORIZE, **form(app)))
    assert set(answer) == {"access_token", "simple_client", "token_type"}
    assert answer["token_type"] == "bearer"
    assert answer["simple_client"] == {"envId": env.id, "orgId": env.organization}
    assert isinstance(answer["access_token"], str) and answer["access_token"]


@pytest.mark.parametrize("form", FORMS)
def test_the_admin_variant_gives_the_same_token_and_no_client(
    http: httpx.Client, app: App, form: Callable[[App], dict[str, Any]]
) -> None:
    token = ok(http.post(AUTHORIZE, data=app.form))["access_token"]
    answer = ok(http.post(ADMIN_AUTHORIZE, **form(app)))
    assert answer == {"access_token": token, "token_type": "bearer"}


def test_all_calls_of_an_app_get_the_same_token(
    http: httpx.Client, new_app: Callable[[], App]
) -> None:
    app, other = new_app(), new_app()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: http.post(AUTHORIZE, data=app.form), range(16)))
    tokens = {ok(answer)["access_token"] for answer in answers}
    assert len(tokens) == 1
    assert ok(http.post(AUTHORIZE, data=other.form))["access_token"] not in tokens


@pytest.mark.parametrize("path", [AUTHORIZE, ADMIN_AUTHORIZE])
@pytest.mark.parametrize(
    "change",
    [
        {"client_secret": "wrong"},
        {"client_secret": ""},
        {"client_secret": None},
        {"client_id": "wrong"},
        {"client_id": ""},
        {"client_id": None},
        {"client_id": None, "client_secret": None},
        {"client_id": "c0" + "5" * 30},
    ],
)
def test_wrong_or_missing_credentials_are_refused(
    http: httpx.Client, app: App, path: str, change: dict[str, str | None]
) -> None:
    asked = {name: value for name, value in {**app.form, **change}.items() if value is not None}
    for request in ({"data": asked}, {"json": {**app.form, **change}}):
        response = http.post(path, **request)
        assert response.status_code == 401, response.text


@pytest.mark.parametrize("grant", ["password", "", None, "CLIENT_CREDENTIALS"])
def test_another_grant_type_is_refused(http: httpx.Client, app: App, grant: str | None) -> None:
    asked = {**app.form, "grant_type": grant}
    if grant is None:
        del asked["grant_type"]
    assert "grant_type" in fail(http.post(AUTHORIZE, data=asked), 400)


def test_a_connected_app_and_a_user_get_no_app_token(
    http: httpx.Client, anypoint: dict[str, Any]
) -> None:
    for asked in (
        {**anypoint["connected_app"], **GRANT},
        {
            "client_id": anypoint["user"]["username"],
            "client_secret": anypoint["user"]["password"],
            **GRANT,
        },
    ):
        assert http.post(AUTHORIZE, data=asked).status_code == 401


# --- showing the token ---


@pytest.mark.parametrize(
    "write",
    [
        lambda token: f"Bearer {token}",
        lambda token: f"bearer {token}",
        lambda token: f"BEARER {token}",
        lambda token: f"bearer{token}",
        lambda token: f"Bearer{token}",
    ],
)
@pytest.mark.parametrize("kind", ["app", "connected_app", "user"])
def test_a_token_of_any_kind_is_shown_in_many_ways(
    queue: Queue, tokens: Tokens, kind: str, write: Callable[[str], str]
) -> None:
    headers = {"Authorization": write(getattr(tokens, kind))}
    assert queue.put(new_id(), {"body": "a"}, headers=headers).status_code == 201


# --- what a token may do ---


# Each with the status that shows it was let through to a queue that has no such message.


@pytest.mark.parametrize(("kind", "status"), [("app", 403), ("connected_app", 403), ("user", 201)])
def test_only_a_user_reaches_another_environment_of_the_organization(
    sibling: Environment, tokens: Tokens, kind: str, status: int
) -> None:
    other = Queue.create(sibling)
    response = other.put(new_id(), {"body": "a"}, token=getattr(tokens, kind))
    assert response.status_code == status, response.text


def test_the_same_name_in_another_environment_is_another_queue(
    env: Environment, sibling: Environment, neighbour: Environment
) -> None:
    here = Queue.create(env)
    others = [Queue.create(each, here.name) for each in (sibling, neighbour)]
    here.publish("here")
    for number, other in enumerate(others):
        assert other.get() == []
        other.publish(f"there {number}")
        assert other.get_one().body == f"there {number}"
    assert here.get_one().body == "here"


# --- the end of a token ---


@pytest.mark.parametrize("end", ["regenerated", "deleted"])
def test_an_app_loses_its_token_with_its_secret(
    queue: Queue, http: httpx.Client, new_app: Callable[[], App], end: str
) -> None:
    app, bystander = new_app(), new_app()
    env = queue.env
    token, other = (
        ok(http.post(AUTHORIZE, data=each.form))["access_token"] for each in (app, bystander)
    )
    assert queue.put("m", {"body": "a"}, token=token).status_code == 201
    method = "POST" if end == "regenerated" else "DELETE"
    path = f"{env.admin_path}/clients/{app.id}"
    answered = env.call(method, path, token=env.tokens.user)
    assert answered.status_code == 200, answered.text
    fail(queue.put("m", {"body": "a"}, token=token), 401, "m")
    assert http.post(AUTHORIZE, data=app.form).status_code == 401
    assert queue.put("m", {"body": "a"}, token=other).status_code == 201
    if end == "regenerated":
        renewed = {**app.form, "client_secret": answered.json()["clientSecret"]}
        fresh = ok(http.post(AUTHORIZE, data=renewed))["access_token"]
        assert fresh != token
        assert queue.put("m", {"body": "a"}, token=fresh).status_code == 201
