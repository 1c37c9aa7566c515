"""Credentials that are wrong, broken, or guessed again and again."""

import pytest

from tests.attack.peer import Account, Peer, accepted, refused
from tests.attack.target import Target
from tests.server import Server

GUESSES = 300
ODD = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer    ",
    "bearer",
    "Basic dXNlcjpwYXNz",
    "Token abc",
    "Bearer a b",
    "Bearer \xff\xfe",
    "Bearer \xe2\x82\xac",
    "Bearer " + "a" * 50_000,
    "Bearer null",
    "Bearer undefined",
    "Bearer ..",
    "Bearer ' or 1=1--",
    "Bearer %00",
    "Digest username=x",
    "\xff",
]


def ask(server: Server, path: str, *headers: str, body: bytes = b"") -> tuple[int, bytes]:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    with Peer(server) as peer:
        peer.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        answer = peer.answer()
        refused(answer, 400, 401, 403)
        assert answer is not None
        return answer.status, answer.body


def test_wrong_token_stays_wrong_however_often_it_is_tried(target: Target) -> None:
    account = target.account
    path = f"{account.root}{target.path}/messages"
    with Peer(account.server) as peer:
        for number in range(GUESSES):
            guess = f"{account.token[:-4]}{number:04d}"
            if guess == account.token:
                continue
            head = account.head("POST", f"/{path}", "Content-Length: 10")
            head = head.replace(account.token.encode(), guess.encode())
            peer.send(head + b'\r\n{"body":1}')
            refused(peer.answer(), 403, code=9109)
    assert target.backlog() == 0
    accepted(target.post("/messages", b'{"body":1}'))


@pytest.mark.parametrize("change", ["upper", "lower", "shorter", "longer", "space", "nul"])
def test_token_that_is_almost_right_is_wrong(target: Target, change: str) -> None:
    account = target.account
    token = account.token
    almost = {
        "upper": token.upper(),
        "lower": token.lower(),
        "shorter": token[:-1],
        "longer": token + "a",
        "space": token[:-1] + "%20",
        "nul": token + "%00",
    }[change]
    assert almost != token
    path = f"{account.root}{target.path}/messages"
    status, _ = ask(account.server, path, f"Authorization: Bearer {almost}", body=b'{"body":1}')
    assert status == 403
    assert target.backlog() == 0


@pytest.mark.parametrize("credential", ODD, ids=lambda credential: credential[:20])
def test_odd_credential_is_refused(target: Target, credential: str) -> None:
    account = target.account
    path = f"{account.root}{target.path}/messages"
    _, body = ask(account.server, path, f"Authorization: {credential}", body=b'{"body":1}')
    assert account.token.encode() not in body
    assert target.backlog() == 0


def test_two_credentials_are_not_better_than_one(target: Target) -> None:
    account = target.account
    path = f"{account.root}{target.path}/messages"
    wrong = "Authorization: Bearer wrong"
    right = f"Authorization: Bearer {account.token}"
    for pair in ((wrong, wrong), (wrong, wrong, wrong)):
        ask(account.server, path, *pair, body=b'{"body":1}')
    with Peer(account.server) as peer:
        lines = [f"GET {account.root}{target.path} HTTP/1.1", "Host: x", wrong, right, "", ""]
        peer.send("\r\n".join(lines).encode())
        answer = peer.answer()
        assert answer is not None and answer.status < 500
    assert target.backlog() == 0


def test_no_credential_at_all_is_refused(target: Target) -> None:
    account = target.account
    status, _ = ask(account.server, f"{account.root}{target.path}/messages", body=b'{"body":1}')
    assert status == 400
    assert target.backlog() == 0


def test_token_in_the_query_is_not_a_credential(target: Target) -> None:
    account = target.account
    path = f"{account.root}{target.path}/messages?access_token={account.token}"
    ask(account.server, path, body=b'{"body":1}')
    assert target.backlog() == 0


def test_admin_token_is_no_api_token_and_the_other_way_round(target: Target) -> None:
    account = target.account
    admin = Account(account.server)
    admin.token = account.server.credentials["admin"]["token"]
    refused(admin.ask("POST", f"{target.path}/messages", b'{"body":1}'), 403)
    for path in ("//courier/v1/tenants", "//courier/v1/tenants/operator/keys"):
        answer = account.ask("GET", path)
        assert answer.status == 403, (path, answer)
        assert answer.json()["error"]["code"]
    assert target.backlog() == 0
