"""Credentials that are wrong, broken or too long, at every door where there is a token."""

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest

from courier.web import PUBLIC_BODY_BYTES_MAX
from tests.attack.doors import (
    APP,
    DOORS,
    FORM,
    MULTIPART,
    Door,
    ask,
    form,
    given,
    good,
    part,
    turned_down,
)
from tests.attack.environment import Environment, body
from tests.attack.peer import Peer, turned_away

GUESSES = 200
READ_SECONDS_MAX = 0.5


@pytest.fixture(params=DOORS, ids=lambda door: door.path)
def door(request: pytest.FixtureRequest) -> Door:
    door: Door = request.param
    return door


def test_every_form_of_good_credentials_is_understood(environment: Environment, door: Door) -> None:
    fields = good(environment, door)
    assert given(ask(environment, door, body(fields)))
    assert given(ask(environment, door, form(fields).encode(), MULTIPART))
    text = "&".join(f"{name}={value.replace('@', '%40')}" for name, value in fields.items())
    assert given(ask(environment, door, text.encode(), FORM))


def test_wrong_secret_stays_wrong_however_often_it_is_tried(
    environment: Environment, door: Door
) -> None:
    fields = good(environment, door)
    id, secret = door.names
    for number in range(GUESSES):
        guess = f"{fields[secret][:-4]}{number:04d}"
        if guess != fields[secret]:
            answer = ask(environment, door, body({**fields, secret: guess}))
            turned_down(environment, door, answer, 401)
    for value in (fields[secret].upper(), fields[secret][:-1], fields[secret] + "a", fields[id]):
        answer = ask(environment, door, body({**fields, secret: value}))
        turned_down(environment, door, answer, 401)
    assert given(ask(environment, door, body(fields)))


def test_secret_of_one_opens_the_door_to_no_other(environment: Environment, door: Door) -> None:
    """Not of another app, not at another door, and not the right secret with another's id."""
    own, fields = environment.own, good(environment, door)
    id, secret = door.names
    held = [
        (own["client_id"], own["client_secret"]),
        (own["connected_app"]["client_id"], own["connected_app"]["client_secret"]),
        (own["user"]["username"], own["user"]["password"]),
    ]
    mine = (fields[id], fields[secret])
    for one, _ in held:
        for _, other in held:
            if (one, other) != mine:
                answer = ask(environment, door, body({**fields, id: one, secret: other}))
                turned_down(environment, door, answer, 401)
    operator = environment.server.credentials["admin"]
    for token in (environment.credentials["cloudflare"]["api_token"], operator["token"]):
        answer = ask(environment, door, body({**fields, secret: token}))
        turned_down(environment, door, answer, 401)


WRONG_KINDS: list[Any] = [None, "", 0, 1.5, True, [], {}, ["x"], 10**30, "\x00", "\udfff"]
NONSENSE = [
    *(b"", b" ", b"{", b"{}", b"[]", b"null", b"\xff", b"{\xff}", b'{"client_id":NaN}'),
    b'{"client_id":"\\ud800","client_secret":"\\ud800","grant_type":"client_credentials"}',
    *(b'{"username":"\\ud800","password":"\\ud800"}', b'{"client_id":"a","client_id":"b"}'),
    *(b'{"a":' * 600 + b"1" + b"}" * 600, b"[" * PUBLIC_BODY_BYTES_MAX),
    b'{"client_id":' + b"9" * 4_000 + b"}",
    b"client_id=%ff&client_secret=%ff&grant_type=client_credentials",
    b"client_id=%00&client_secret=%zz&grant_type=client_credentials",
    *(b"client_id=\x00&client_secret=\xe2\x82&grant_type=client_credentials", b"client_id"),
    *(b"=&=&=", b"&" * 4_000, b"a=b&" * 1_000, b"client_id=a&" * 300 + b"client_secret=b"),
    b"\x00" * PUBLIC_BODY_BYTES_MAX,
]


def test_credential_of_the_wrong_kind_is_refused(environment: Environment, door: Door) -> None:
    for value in WRONG_KINDS:
        for name in door.names:
            fields = {**good(environment, door), name: value}
            turned_down(environment, door, ask(environment, door, body(fields)), 400, 401)


def test_body_that_makes_no_sense_is_refused(environment: Environment, door: Door) -> None:
    assert max(map(len, NONSENSE)) == PUBLIC_BODY_BYTES_MAX
    for data in NONSENSE:
        for headers in ((), (FORM,), ("Content-Type: application/json",), (MULTIPART,)):
            turned_down(environment, door, ask(environment, door, data, *headers), 400, 401)


ID = part("client_id", "a")
BROKEN_FORMS = [
    ("multipart/form-data", ID),
    ("multipart/form-data; boundary=", ID),
    ('multipart/form-data; boundary="', ID),
    ("multipart/form-data; boundary=" + "x" * 10_000, ID),
    ("multipart/form-data; boundary=other", ID),
    ("multipart/form-data; boundary=\xff", ID),
    ("multipart/form-data; boundary*=utf-8''%ff", ID),
    ("multipart/form-data; boundary*=nonsense''xyz", ID),
    ("multipart/form-data; boundary*0=x; boundary*1=yz; boundary*9999999999=a", ID),
    ("multipart/form-data; charset=nonsense; boundary=xyz", ID),
    ("multipart/form-data; boundary=xyz; boundary=abc", ID),
    ("multipart/form-data; boundary=xyz", ""),
    ("multipart/form-data; boundary=xyz", "--xyz"),
    ("multipart/form-data; boundary=xyz", "--xyz--"),
    ("multipart/form-data; boundary=xyz", "--xyz\r\n" * 500),
    ("multipart/form-data; boundary=xyz", ID * 50),
    ("multipart/form-data; boundary=xyz", "--xyz\r\n\r\nno name\r\n--xyz--"),
    ("multipart/form-data; boundary=xyz", '--xyz\r\nContent-Disposition: form-data; name="'),
    ("multipart/form-data; boundary=xyz", "--xyz\r\n: :\r\nContent-Disposition\r\n\r\na\r\n"),
    ("multipart/form-data; boundary=xyz", "--xyz\r\n" + "X: y\r\n" * 600 + "\r\na"),
    ("multipart/form-data; boundary=xyz", part("client_id", "a", "Content-Type: multipart/mixed")),
    (
        "multipart/form-data; boundary=xyz",
        part("client_id", ID * 20, "Content-Type: multipart/mixed; boundary=xyz"),
    ),
    (
        "multipart/form-data; boundary=xyz",
        part("client_id", "a", "Content-Type: message/rfc822") * 30,
    ),
    *(
        (
            "multipart/form-data; boundary=xyz",
            part("client_id", "=ZZ\xff%", f"Content-Transfer-Encoding: {coding}"),
        )
        for coding in ("base64", "quoted-printable", "x-uuencode", "7bit", "nonsense", "")
    ),
    ("multipart/form-data; boundary=xyz", part("client_id", "a", "Content-Type: text/plain; x*=y")),
    ("multipart/form-data; boundary=xyz", part("client_id", "a", "Content-Type: a; charset=no")),
    (
        "multipart/form-data; boundary=xyz",
        "--xyz\r\nContent-Disposition: form-data; name*=utf-8''%ff\r\n\r\na\r\n--xyz--",
    ),
    (
        "multipart/form-data; boundary=xyz",
        "--xyz\r\nContent-Disposition: form-data; name*=no''%41; name*0=a\r\n\r\na\r\n--xyz--",
    ),
    ("multipart/form-data; boundary=xyz", part("client_id", "\x00\xff" * 1_000)),
    ("multipart/mixed; boundary=xyz", ID),
    ("MULTIPART/FORM-DATA; BOUNDARY=xyz", ID),
]


def test_broken_multipart_is_refused(environment: Environment, door: Door) -> None:
    for kind, text in BROKEN_FORMS:
        assert len(text) <= PUBLIC_BODY_BYTES_MAX
        answer = ask(environment, door, text.encode("latin-1"), f"Content-Type: {kind}")
        turned_down(environment, door, answer, 400, 401)


def nested(levels: int) -> Iterator[str]:
    """A form within a form within a form."""
    yield '--b0\r\nContent-Disposition: form-data; name="client_id"\r\n'
    for level in range(1, levels):
        yield f"Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n"
    yield "\r\na"


@pytest.mark.parametrize("levels", [10, 70])
def test_forms_within_forms_are_refused(environment: Environment, door: Door, levels: int) -> None:
    data = "".join(nested(levels)).encode()
    assert len(data) <= PUBLIC_BODY_BYTES_MAX
    kind = "Content-Type: multipart/form-data; boundary=b0"
    turned_down(environment, door, ask(environment, door, data, kind), 400, 401)


@pytest.mark.parametrize("levels", [35, 70])
def test_credentials_do_not_keep_others_waiting(environment: Environment, levels: int) -> None:
    """Anybody may send them. What can be sent must not take long to read, however it is made."""
    data = "".join(nested(levels)).encode().ljust(PUBLIC_BODY_BYTES_MAX, b"\n")
    kind = "Content-Type: multipart/form-data; boundary=b0"
    began = time.monotonic()
    turned_down(environment, DOORS[0], ask(environment, DOORS[0], data, kind), 400, 401)
    assert time.monotonic() - began < READ_SECONDS_MAX


@pytest.mark.parametrize(
    "basic",
    [
        "",
        " ",
        "=",
        "====",
        "!!!!",
        "a",
        "YQ==",
        "Og==",
        "OmE=",
        "YTo=",
        "/////w==",
        base64.b64encode(b"\xff:\xff").decode(),
        base64.b64encode(b"a:\x00").decode(),
        base64.b64encode(b":" * 30_000).decode(),
        "YTpi YTpi",
        "YTpi,YTpi",
        "\xff",
        "YTpi\xff",
    ],
    ids=lambda basic: repr(basic[:12]),
)
def test_broken_basic_header_is_refused(environment: Environment, basic: str) -> None:
    for door in DOORS:
        for data in (b"", b"grant_type=client_credentials"):
            answer = ask(environment, door, data, f"Authorization: Basic {basic}")
            turned_down(environment, door, answer, 400, 401)


def test_basic_header_with_a_good_id_and_secret_is_understood(environment: Environment) -> None:
    for door in DOORS[:4]:
        fields = good(environment, door)
        pair = base64.b64encode(":".join(fields[name] for name in APP).encode()).decode()
        data = b"grant_type=client_credentials"
        assert given(ask(environment, door, data, f"Authorization: Basic {pair}"))
        wrong = base64.b64encode(f"{fields['client_id']}:x".encode()).decode()
        answer = ask(environment, door, data, f"Authorization: Basic {wrong}")
        turned_down(environment, door, answer, 401)


def test_credentials_in_the_query_are_none(environment: Environment, door: Door) -> None:
    fields = good(environment, door)
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    asked = door._replace(path=f"{door.path}?{query}")
    turned_down(environment, asked, ask(environment, asked, b""), 400, 401)


@pytest.mark.parametrize("length", [1 << 17, 10**7, 10**12])
def test_declared_credentials_over_the_cap_are_refused_before_they_are_sent(
    environment: Environment, door: Door, length: int
) -> None:
    lines = [f"POST {door.path} HTTP/1.1", "Host: x", f"Content-Length: {length}", "", ""]
    with Peer(environment.server) as peer:
        peer.send("\r\n".join(lines).encode())
        answer = peer.answer()
        assert answer is not None
        turned_down(environment, door, answer, 413)
        assert peer.hung_up()


def test_credentials_of_unknown_length_are_cut_off_at_the_cap(
    environment: Environment, door: Door
) -> None:
    lines = [f"POST {door.path} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "", ""]
    sent = 0
    with Peer(environment.server) as peer:
        peer.send("\r\n".join(lines).encode())
        while not peer.answered(within_s=0.01) and peer.send(b"1000\r\n%s\r\n" % (b"x" * 0x1000)):
            sent += 0x1000
            assert sent < 8 << 20, "the server still listens"
        answer = peer.answer()
        assert answer is not None
        turned_down(environment, door, answer, 413)
        assert peer.hung_up()


def test_credentials_of_just_the_cap_are_read(environment: Environment, door: Door) -> None:
    data = body(good(environment, door)).ljust(PUBLIC_BODY_BYTES_MAX)
    assert given(ask(environment, door, data))
    turned_down(environment, door, ask(environment, door, data + b" "), 413)


def test_garbage_after_credentials_is_turned_away(environment: Environment, door: Door) -> None:
    data = body(good(environment, door))
    lines = [f"POST {door.path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}", "", ""]
    with Peer(environment.server) as peer:
        peer.send("\r\n".join(lines).encode() + data + b"\x00\x01 garbage\r\n\r\n")
        answer = peer.answer()
        assert answer is not None and given(answer)
        turned_away(peer.answer())
