"""Bodies that are not JSON, or that are JSON nobody sane would send."""

import base64

import pytest

from tests.attack.peer import accepted, refused
from tests.attack.target import Target

PUSH = "/messages"
BATCH = "/messages/batch"
NOT_JSON = [
    b"\xff",
    b'\xff{"body":1}',
    b'{"body":1}\xff',
    b'{"body":"\xff"}',
    b'{"body":"\xc0\xaf"}',
    b'{"body":"\xed\xa0\x80"}',
    b'{"body":"\xf4\x90\x80\x80"}',
    b'{"body":"\xe2\x82"}',
    b'{"\xff":1,"body":1}',
    b'\xef\xbb\xbf{"body":1}',
    '{"body":1}'.encode("utf-16"),
    '{"body":1}'.encode("utf-32"),
    b'{"body":1',
    b'{"body":1}}',
    b'{"body":1} x',
    b'{"body":1}{"body":2}',
    b'{"body":01}',
    b'{"body":.5}',
    b'{"body":1.}',
    b'{"body":+1}',
    b'{"body":0x10}',
    b'{"body":NaN}',
    b'{"body":Infinity}',
    b'{"body":-Infinity}',
    b'{"body":[NaN]}',
    b'{"body":1,}',
    b'{"body":[1,]}',
    b"{'body':1}",
    b"{body:1}",
    b'{"body":"\x00"}',
    b'{"body":"\n"}',
    b'{"body":"\\x41"}',
    b'{"body":"\\u12"}',
    b'{"body":tru}',
    b'{"body":1}\x00',
    b'/* */{"body":1}',
    b"body=1",
    b"\x1f\x8b\x08\x00",
    b"<body>1</body>",
]
NOT_AN_OBJECT = [b"null", b"[]", b'"text"', b"1", b"true", b'[{"body":1}]']
LONE = b"\\ud800"
EXACT = [
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"1" + b"0" * 400,
    b"-0",
    b"-0.0",
    b"1.10",
    b"1E+2",
    b"12345678901234567890.12345678901234567890",
    b"9" * 5_000,
    b"0." + b"3" * 5_000,
]
ABSURD = [
    b"1e400",
    b"-1e400",
    b"1e30",
    b"1" + b"0" * 400,
    b"9" * 5_000,
    b"0.1",
    b"-1",
    b"9223372036854775808",
    b"18446744073709551616",
    b"86400.5",
    b"1e19",
]


@pytest.mark.parametrize("body", NOT_JSON, ids=repr)
def test_push_of_what_is_not_json_is_refused(target: Target, body: bytes) -> None:
    refused(target.post(PUSH, body), 400, code=10208)
    refused(target.post(BATCH, b'{"messages":[%s]}' % body), 400, code=10208)
    assert target.backlog() == 0


@pytest.mark.parametrize("body", NOT_JSON, ids=repr)
def test_what_is_not_json_is_refused_everywhere_else(target: Target, body: bytes) -> None:
    account = target.account
    for path in ("/messages/pull", "/messages/ack", "/messages/peek", "/purge", "/consumers"):
        refused(target.post(path, body), 400)
    refused(account.ask("POST", "/queues", body), 400, code=10026)
    refused(account.ask("PATCH", target.path, body), 400, code=10026)
    refused(account.ask("PUT", target.path, body), 400, code=10026)
    refused(account.ask("POST", "/event_subscriptions/subscriptions", body), 400)


@pytest.mark.parametrize("body", NOT_AN_OBJECT, ids=repr)
def test_body_that_is_no_object_is_refused(target: Target, body: bytes) -> None:
    account = target.account
    refused(target.post(PUSH, body), 400, code=10207)
    refused(target.post(BATCH, body), 400, code=10207)
    refused(target.post("/messages/pull", body), 400, code=10026)
    refused(target.post("/messages/ack", body), 400, code=10026)
    refused(target.post("/messages/peek", body), 400)
    refused(target.post("/messages/purge", body), 400)
    refused(target.post("/purge", body), 400, code=10026)
    refused(target.post("/consumers", body), 400, code=10026)
    refused(account.ask("POST", "/queues", body), 400)
    refused(account.ask("PATCH", target.path, body), 400)
    refused(account.ask("POST", "/event_subscriptions/subscriptions", body), 400)
    assert target.backlog() == 0


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n"], ids=repr)
def test_push_of_nothing_is_refused(target: Target, body: bytes) -> None:
    refused(target.post(PUSH, body), 400)
    refused(target.post(BATCH, body), 400)
    assert target.backlog() == 0


@pytest.mark.parametrize(
    "field",
    [
        b'"body":"%s","content_type":"text"',
        b'"body":"before %s after","content_type":"text"',
        b'"body":"\\udc00\\ud800%s","content_type":"text"',
        b'"body":1,"content_type":"%s"',
    ],
)
def test_lone_surrogate_in_a_text_is_refused(target: Target, field: bytes) -> None:
    refused(target.post(PUSH, b"{%s}" % (field % LONE)), 400)
    refused(target.post(BATCH, b'{"messages":[{"body":1},{%s}]}' % (field % LONE)), 400)
    assert target.backlog() == 0


def test_surrogate_pair_is_one_character(target: Target) -> None:
    accepted(target.post(PUSH, b'{"body":"\\ud83d\\ude00","content_type":"text"}'))
    assert target.pull()[0]["body"] == "\U0001f600"


def test_lone_surrogate_inside_a_json_message_does_no_harm(target: Target) -> None:
    answer = target.post(PUSH, b'{"body":{"a":"%s"}}' % LONE)
    assert answer.status in (200, 400)
    assert len(target.pull()) == target.backlog() == (answer.status == 200)


def test_lone_surrogate_in_a_setting_is_refused(target: Target) -> None:
    account = target.account
    refused(account.ask("POST", "/queues", b'{"queue_name":"%s"}' % LONE), 400)
    refused(account.ask("PATCH", target.path, b'{"queue_name":"%s"}' % LONE), 400)
    consumer = b'{"type":"worker","script_name":"%s"}' % LONE
    refused(target.post("/consumers", consumer), 400)
    assert target.post("/messages/ack", b'{"acks":[{"lease_id":"%s"}]}' % LONE).status < 500


@pytest.mark.parametrize("levels", [1_000, 60_000, 100_000])
@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[", b""), (b'[{"a":', b"}]")]
)
def test_deep_nesting_in_the_envelope_is_refused(
    target: Target, levels: int, opening: bytes, closing: bytes
) -> None:
    deep = opening * levels + b"1" + closing * levels
    refused(target.post(PUSH, deep), 400)
    refused(target.post(BATCH, b'{"messages":%s}' % deep), 400)
    refused(target.post("/messages/ack", b'{"acks":%s}' % deep), 400)
    refused(target.account.ask("POST", "/queues", b'{"queue_name":%s}' % deep), 400)
    # In a field nobody knows it may be passed over.
    assert target.post("/messages/pull", b'{"ignored":%s}' % deep).status in (200, 400)
    assert target.backlog() == 0


@pytest.mark.parametrize("levels", [500, 5_000, 60_000, 100_000])
def test_deep_nesting_inside_a_message_is_kept_or_refused(target: Target, levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    answer = target.post(PUSH, b'{"body":%s}' % deep)
    assert answer.status in (200, 400, 413)
    for message in target.pull():
        assert base64.b64decode(message["body"]) == deep
    assert target.backlog() == (answer.status == 200)


@pytest.mark.parametrize(
    "number",
    EXACT,
    ids=lambda number: number[:12],
)
def test_number_inside_a_message_keeps_its_exact_text(target: Target, number: bytes) -> None:
    accepted(target.post(PUSH, b'{"body":%s}' % number))
    accepted(target.post(PUSH, b'{"body":{"n": [%s]}}' % number))
    assert [base64.b64decode(message["body"]) for message in target.pull()] == [
        number,
        b'{"n":[%s]}' % number,
    ]


@pytest.mark.parametrize(
    "number",
    ABSURD,
    ids=lambda number: number[:12],
)
def test_number_nobody_could_mean_is_refused(target: Target, number: bytes) -> None:
    account = target.account
    refused(target.post(PUSH, b'{"body":1,"delay_seconds":%s}' % number), 400, code=10203)
    refused(
        target.post(BATCH, b'{"messages":[{"body":1,"delay_seconds":%s}]}' % number),
        400,
        code=10203,
    )
    refused(
        target.post(BATCH, b'{"messages":[{"body":1}],"delay_seconds":%s}' % number),
        400,
        code=10202,
    )
    refused(target.post("/messages/pull", b'{"batch_size":%s}' % number), 400, code=10026)
    refused(target.post("/messages/pull", b'{"visibility_timeout_ms":%s}' % number), 400)
    refused(target.post("/messages/peek", b'{"batch_size":%s}' % number), 400)
    retry = b'{"retries":[{"lease_id":"x","delay_seconds":%s}]}' % number
    refused(target.post("/messages/ack", retry), 400, code=10026)
    settings = b'{"settings":{"delivery_delay":%s}}' % number
    refused(account.ask("PATCH", target.path, settings), 400, code=100128)
    for parameter in (b"page", b"per_page"):
        refused(account.ask("GET", f"/queues?{parameter.decode()}={number.decode()}"), 400)
    assert target.backlog() == 0


@pytest.mark.parametrize("number", [b"2.0", b"2e0", b"20e-1", b"0.2e1", b"2.000000000000000"])
def test_number_without_a_fraction_is_whole_however_it_is_written(
    target: Target, number: bytes
) -> None:
    accepted(target.post(BATCH, b'{"messages":[{"body":1},{"body":2},{"body":3}]}'))
    assert (
        len(accepted(target.post("/messages/pull", b'{"batch_size":%s}' % number))["messages"]) == 2
    )


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        (PUSH, b'{"body":1,"body":2}', "body"),
        (PUSH, b'{"body":1,"\\u0062ody":2}', "body"),
        (PUSH, b'{"bod\\u0079":1,"body":1}', "body"),
        (PUSH, b'{"body":1,"delay_seconds":0,"delay_seconds":5}', "delay_seconds"),
        (PUSH, b'{"body":"a","content_type":"json","content_type":"text"}', "content_type"),
        (BATCH, b'{"messages":[{"body":1}],"messages":[{"body":2}]}', "messages"),
        (BATCH, b'{"messages":[{"body":1},{"body":2,"body":3}]}', "body"),
        (BATCH, b'{"messages":[{"body":1},{"body":2,"b\\u006fdy":3}]}', "body"),
        ("/messages/pull", b'{"batch_size":1,"batch_size":100}', "batch_size"),
        ("/messages/ack", b'{"acks":[],"acks":[]}', "acks"),
        ("/messages/ack", b'{"acks":[{"lease_id":"a","lease_id":"b"}]}', "lease_id"),
        ("/messages/ack", b'{"acks":[{"lease_id":"a","lease\\u005fid":"b"}]}', "lease_id"),
        ("/consumers", b'{"type":"worker","script_name":"a","type":"http_pull"}', "type"),
        (
            "/consumers",
            b'{"type":"http_pull","settings":{"max_retries":1,"max_retries":2}}',
            "max_retries",
        ),
        (
            "/purge",
            b'{"delete_messages_permanently":false,"delete_messages_permanently":true}',
            "delete",
        ),
    ],
)
def test_field_given_twice_is_refused_by_name(
    target: Target, path: str, body: bytes, key: str
) -> None:
    assert key in refused(target.post(path, body), 400)
    assert target.backlog() == 0


def test_setting_given_twice_is_refused_by_name(target: Target, queue_name: str) -> None:
    account = target.account
    name = queue_name.encode()
    twice = b'{"queue_name":"%s-a","queue_name":"%s-b"}' % (name, name)
    assert "queue_name" in refused(account.ask("POST", "/queues", twice), 400)
    twice = b'{"queue_name":"%s-a","settings":{"delivery_delay":1,"delivery_del\\u0061y":2}}' % name
    assert "delivery_delay" in refused(account.ask("POST", "/queues", twice), 400)
    twice = b'{"settings":{"delivery_paused":true},"settings":{"delivery_paused":false}}'
    assert "settings" in refused(account.ask("PATCH", target.path, twice), 400)
    listed = accepted(account.ask("GET", f"/queues?name={queue_name}-a&name={queue_name}-b"))
    assert listed == []


def test_key_given_twice_inside_a_message_is_the_publishers_business(target: Target) -> None:
    accepted(target.post(PUSH, b'{"body":{"a":1,"a":2}}'))
    assert base64.b64decode(target.pull()[0]["body"]) == b'{"a":1,"a":2}'


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "\xff", "", "a" * 500]
)
def test_body_is_json_whatever_its_content_type_says(target: Target, kind: str) -> None:
    path = target.path + PUSH
    accepted(target.account.ask("POST", path, b'{"body":1}', f"Content-Type: {kind}"))
    assert target.backlog() == 1


@pytest.mark.parametrize("coding", ["gzip", "br", "nonsense"])
def test_coded_body_is_refused_not_guessed(target: Target, coding: str) -> None:
    path = target.path + PUSH
    coded = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    refused(target.account.ask("POST", path, coded, f"Content-Encoding: {coding}"), 400, 415)
    assert target.backlog() == 0
