"""Credentials that are wrong, broken, or guessed again and again."""

from tests.attack.peer import Account, Peer, accepted, refused
from tests.attack.target import Target
from tests.server import Server

GUESSES = 300


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
