"""Who gets in, how, for how long; and that no other site acts for them."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from courier.clock import ManualClock
from courier.console.guard import CODE_MS, CODES_MAX, Codes, page_after
from courier.core.errors import Unauthenticated
from tests.console.conftest import HTML, SAME, Visitor, new_key, new_queue
from tests.routes import tables
from tests.server import Server

with tempfile.TemporaryDirectory() as directory:
    ROUTES = [route for site, route in tables(Path(directory)) if site.name == "console"]
FORMS = [route for route in ROUTES if route.method == "POST"]
POLICY = "default-src 'none'"
# The first request loads the pages, which takes long on a busy machine.
LOADING_S_MAX = 60.0


def _path(path: str) -> str:
    return "/console" + re.sub(r"{\w+}", "c0" + "0" * 30, path)


def _guarded(answer: httpx.Response) -> None:
    headers = answer.headers
    assert headers["content-security-policy"].startswith(POLICY)
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "no-store" in headers["cache-control"] or "immutable" in headers["cache-control"]


def test_a_browser_at_the_root_is_led_to_the_console(server: Server) -> None:
    answer = httpx.get(server.url, headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "console")
    assert httpx.get(server.url).status_code == 404


def test_a_stranger_is_asked_to_sign_in_and_then_led_back(
    server: Server, visitor: Callable[..., Visitor]
) -> None:
    stranger = visitor()
    asked = stranger.get("/console?state=held")
    assert asked.status_code == 303
    page = stranger.follow(asked)
    assert page.status_code == 200 and "Sign in" in page.text
    key = {"key": server.credentials["cloudflare"]["api_token"]}
    signed = stranger.http.post(page.url, data=key, headers=SAME)
    assert str(signed.url.join(signed.headers["location"])).endswith("/console?state=held")
    assert stranger.follow(signed).status_code == 200


def test_a_user_signs_in_with_a_password(server: Server, visitor: Callable[..., Visitor]) -> None:
    user = server.credentials["anypoint"]["user"]
    known = visitor()
    fields = {"user": user["username"], "password": user["password"]}
    answer = known.http.post("/console/sign-in", data=fields, headers=SAME)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie
    assert "Domain" not in cookie
    assert user["username"] in known.get("/console").text
    wrong = {**fields, "user": "admin@other"}
    refused = visitor().http.post("/console/sign-in", data=wrong, headers=SAME)
    assert refused.status_code == 401 and "is known here" in refused.text


def test_nothing_filled_in_is_said_at_the_form(visitor: Callable[..., Visitor]) -> None:
    answer = visitor().http.post("/console/sign-in", data={"key": ""}, headers=SAME)
    assert answer.status_code == 400 and "Give a key" in answer.text


def test_a_code_signs_in_once(server: Server, visitor: Callable[..., Visitor]) -> None:
    bearer = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    made = httpx.post(f"{server.url}/console/enter", json={}, headers=bearer).json()
    path = made["url"].removeprefix(server.url)
    first, second = visitor(), visitor()
    assert first.follow(first.get(path)).status_code == 200
    assert second.get(path).status_code == 401
    assert path.partition("=")[2] not in server.log()


def test_codes_are_few_and_end_after_ten_minutes() -> None:
    clock = ManualClock()
    codes = Codes(clock)
    first = codes.new("key")
    many = [codes.new(f"key {number}") for number in range(CODES_MAX)]
    with pytest.raises(Unauthenticated):
        codes.use(first)
    assert codes.use(many[-1]) == f"key {CODES_MAX - 1}"
    clock.advance(CODE_MS)
    with pytest.raises(Unauthenticated):
        codes.use(many[-2])


def test_signing_out_ends_the_session(server: Server, visitor: Callable[..., Visitor]) -> None:
    known = visitor(server.credentials["admin"]["token"])
    cookies = dict(known.http.cookies)
    assert known.post("/console/sign-out").status_code == 303
    again = httpx.get(f"{server.url}/console", cookies=cookies, headers=HTML)
    assert again.status_code == 303 and "sign-in" in again.headers["location"]


def test_a_session_ends_with_its_key(server: Server, visitor: Callable[..., Visitor]) -> None:
    made = new_key(server, "short-lived", ["read"])
    known = visitor(made["token"])
    assert known.get("/console").status_code == 200
    admin = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
    place = f"{server.url}/courier/v1/tenants/default/keys/{made['key']['id']}"
    assert httpx.delete(place, headers=admin).status_code == 200
    assert known.get("/console").status_code == 303


def test_a_session_is_no_token_of_another_api(
    server: Server, visitor: Callable[..., Visitor]
) -> None:
    known = visitor(server.credentials["admin"]["token"])
    token = next(iter(known.http.cookies.values()))
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{server.url}/accounts/api/me", headers=bearer).status_code == 401
    assert httpx.get(f"{server.url}/console", headers=bearer).status_code in (401, 429)


@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.path)
def test_a_form_of_another_site_is_refused(
    server: Server, operator: Visitor, route: object
) -> None:
    path = _path(route.path)  # type: ignore[attr-defined]
    token = {"token": operator.token()}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {},
    ):
        answer = operator.http.post(path, data=token, headers=headers)
        # Where the path names nothing that exists, that is said first.
        assert answer.status_code in (403, 404), (headers, answer.text)
        _guarded(answer)


@pytest.mark.parametrize(
    "route", [route for route in FORMS if route.scope is not None], ids=lambda route: route.path
)
def test_a_form_needs_the_token_of_its_own_session(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor], route: object
) -> None:
    other = visitor(server.credentials["admin"]["token"])
    path = _path(route.path)  # type: ignore[attr-defined]
    for token in ("", "x", other.token()):
        answer = operator.http.post(path, data={"token": token}, headers=SAME)
        assert answer.status_code in (403, 404), answer.text
    as_json = operator.http.post(path, json={}, headers=SAME)
    assert as_json.status_code in (403, 404)


def test_a_form_with_all_of_it_is_taken(server: Server, operator: Visitor) -> None:
    """So that the refusals above are not for another reason."""
    queue = new_queue(server, "guarded")
    origin = {"Origin": server.url}
    fields = {"token": operator.token()}
    paused = operator.http.post(f"/console/queues/{queue}/pause", data=fields, headers=origin)
    assert paused.status_code == 303
    assert operator.facts(f"/console/queues/{queue}")["settings"]["paused"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_answer_carries_the_policy(
    server: Server, operator: Visitor, visitor: Callable[..., Visitor], route: object
) -> None:
    path = _path(route.path)  # type: ignore[attr-defined]
    method = route.method  # type: ignore[attr-defined]
    for who in (operator, visitor()):
        answer = who.http.request(method, path, headers={**SAME, "Connection": "close"})
        _guarded(answer)
        assert answer.status_code < 500
        assert "<script>" not in answer.text and " style=" not in answer.text


def test_guessing_is_slowed_down(tmp_path: Path) -> None:
    with Server(tmp_path).start() as server:
        where = f"{server.url}/console/sign-in"
        guesses = [
            httpx.post(
                where, data={"key": f"guess {n}"}, headers=SAME, timeout=LOADING_S_MAX
            ).status_code
            for n in range(12)
        ]
        assert guesses[:10] == [401] * 10 and guesses[-1] == 429
        code = httpx.get(f"{server.url}/console/enter?code=x", headers=HTML)
        assert code.status_code == 429 and int(code.headers["retry-after"]) >= 1
        good = {"key": server.credentials["admin"]["token"]}
        assert httpx.post(where, data=good, headers=SAME).status_code == 303


def test_behind_tls_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    args = ("--public-url", "https://mq.example")
    with Server(tmp_path, args=args).start() as server:
        good = {"key": server.credentials["admin"]["token"]}
        where = f"{server.url}/console/sign-in"
        answer = httpx.post(where, data=good, headers=SAME, timeout=LOADING_S_MAX)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-courier_console=") and "Secure" in cookie
        origin = {"Origin": "https://mq.example"}
        answer = httpx.post(where, data=good, headers=origin)
        assert answer.status_code == 303


def test_the_console_can_be_off(tmp_path: Path) -> None:
    with Server(tmp_path, args=("--no-console",)).start() as server:
        bearer = {"Authorization": f"Bearer {server.credentials['admin']['token']}"}
        assert httpx.get(f"{server.url}/console", headers=bearer).status_code == 404
        assert httpx.get(f"{server.url}/", headers={**HTML, **bearer}).status_code == 404
        assert "The console is at" not in server.log()


@pytest.mark.parametrize(
    ("given", "page"),
    [
        ("/console", "/console"),
        ("/console/queues/c0?since=1h&q=a%20b", "/console/queues/c0?since=1h&q=a%20b"),
        ("", "/console"),
        ("//elsewhere.example", "/console"),
        ("/console/../../elsewhere", "/console"),
        ("/console\\elsewhere", "/console"),
        ("https://elsewhere.example/console", "/console"),
        ("/consoles", "/console"),
        ("/console/sign-out", "/console"),
        ("/console\r\nset-cookie: a=b", "/console"),
    ],
)
def test_a_sign_in_leads_to_a_page_of_the_console(given: str, page: str) -> None:
    assert page_after(given) == page


def test_nothing_of_the_console_is_loaded_before_the_first_request(tmp_path: Path) -> None:
    code = (
        "import sys, courier.app\n"
        "late = {'jinja2', 'markupsafe', 'courier.console.pages', 'courier.console.facts'}\n"
        "assert not late & set(sys.modules), late & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
