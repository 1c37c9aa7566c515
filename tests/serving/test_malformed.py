"""Requests that are malformed, by the classes of llhttp's own tests, on a connection of ours.

Each is sent behind a good request and before another, whole and byte by byte: the first one is
answered, the bad one refused, the connection is over, and what follows is not taken for a request.
"""

import re

import pytest
import uvloop

from courier.heads import Heads
from tests.serving.test_known_heads import post, story

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"

# By class: what llhttp calls an error, and what is beyond it for us (versions, hosts, targets).
MALFORMED = {
    "another protocol": b"GET / ICE/1.0\r\nhost: a\r\n\r\n",
    "nearly this protocol": b"GET / IHTTP/1.0\r\nhost: a\r\n\r\n",
    "a method of another protocol": b"ANNOUNCE / HTTP/1.1\r\nhost: a\r\n\r\n",
    "no method": b" / HTTP/1.1\r\nhost: a\r\n\r\n",
    "a method that goes on": b"GETS / HTTP/1.1\r\nhost: a\r\n\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target with a tab": b"GET /a\tb HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target with a zero": b"GET /a\0b HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target that is no path": b"GET a HTTP/1.1\r\nhost: a\r\n\r\n",
    "no version": b"GET /\r\nhost: a\r\n\r\n",
    "an unknown version": b"GET / HTTP/5.6\r\nhost: a\r\n\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\nhost: a\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nhost: a\r\n\r\n",
    "a version that goes on": b"GET / HTTP/1.11\r\nhost: a\r\n\r\n",
    "only line feeds": b"GET / HTTP/1.1\nhost: a\n\n",
    "a line feed after the version": b"GET / HTTP/1.1\nhost: a\r\n\r\n",
    "a blank after the request line": b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
    "fields parted by a carriage return": GET + b"foo: 1\rbar: 2\r\n\r\n",
    "fields parted by a line feed": POST
    + b"x:x\ntransfer-encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n",
    "an empty field parted by a carriage return": POST + b"x:\rtransfer-encoding: chunked\r\n\r\n",
    "an empty field parted by a line feed": POST + b"x:\ntransfer-encoding: chunked\r\n\r\n",
    "a head that ends in other characters": GET + b"\rZGET /evil HTTP/1.1\r\nhost: a\r\n\r\n",
    "a field name with an at sign": GET + b"fo@: 1\r\n\r\n",
    "a field name with a control character": GET + b"fo\1o: 1\r\n\r\n",
    "a field name with a blank": GET + b"fo o: 1\r\n\r\n",
    "a blank before the colon": GET + b"content-length : 0\r\n\r\n",
    "no field name": GET + b": 1\r\n\r\n",
    "no colon": GET + b"foo\r\n\r\n",
    "a folded field name": GET + b"name\r\n : value\r\n\r\n",
    "a folded value": POST + b"foo: bar\r\n content-length: 38\r\n\r\n",
    "a value with a zero": GET + b"foo: a\0b\r\n\r\n",
    "a corrupted name": GET + b"connection\r\x1b\x35\xd5eep-alive\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\naccept: */*\r\n\r\n",
    "a length that overflows": POST + b"content-length: 1000000000000000000000\r\n\r\n",
    "two lengths": POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "the same length twice": POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\na",
    "a length in parts": POST + b"content-length: 4 2\r\n\r\n",
    "a list of lengths": POST + b"content-length: 1, 1\r\n\r\na",
    "an empty length": POST + b"content-length:\r\n\r\n",
    "a negative length": POST + b"content-length: -1\r\n\r\n",
    "a signed length": POST + b"content-length: +1\r\n\r\na",
    "a length in hexadecimal": POST + b"content-length: 0x1\r\n\r\na",
    "a length with a fraction": POST + b"content-length: 1.0\r\n\r\na",
    "a carriage return for a hyphen": POST + b"content\rlength: 1\r\n\r\na",
    "a length and chunks": POST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    "chunks and a length": POST + b"transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
    "an empty coding": POST + b"transfer-encoding:\r\ncontent-length: 1\r\n\r\na",
    "an unknown coding": POST + b"transfer-encoding: pigeons\r\n\r\n",
    "identity": POST + b"transfer-encoding: identity\r\n\r\n",
    "chunked before another coding": POST + b"transfer-encoding: chunked, gzip\r\n\r\n",
    "nearly chunked": POST + b"transfer-encoding: chunkedchunked\r\n\r\n",
}
BAD_CHUNKS = {
    "a size that is no number": b"zz\r\naa\r\n0\r\n\r\n",
    "a size with a sign": b"+1\r\na\r\n0\r\n\r\n",
    "a size with a prefix": b"0x1\r\na\r\n0\r\n\r\n",
    "a size that overflows": b"fffffffffffffffff\r\na\r\n0\r\n\r\n",
    "no size": b"\r\na\r\n0\r\n\r\n",
    "a blank in place of a semicolon": b"2 ext\r\naa\r\n0\r\n\r\n",
    "a semicolon alone": b"2;\r\naa\r\n0\r\n\r\n",
    "an open quote": b'2;a="b\r\naa\r\n0\r\n\r\n',
    "a line feed after the size": b"2\naa\r\n0\r\n\r\n",
    "more than its size": b"1\r\naaa\r\n0\r\n\r\n",
    "less than its size": b"3\r\na\r\n0\r\n\r\n",
    "a bad trailer": b"1\r\na\r\n0\r\nfo@: 1\r\n\r\n",
}
BEHIND = b"GET /behind HTTP/1.1\r\nhost: a\r\n\r\n"


def answers(*parts: bytes) -> tuple[list[int], bool]:
    """The statuses of what was answered, and whether the connection is over."""
    sent, closed = uvloop.run(story(parts, Heads()))
    assert b"/behind" not in sent
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", sent)], closed


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_head_is_refused_and_nothing_behind_it_read(name: str) -> None:
    bad = MALFORMED[name]
    assert answers(post(b"good"), bad + BEHIND) == ([200, 400], True)
    singly = [bytes([byte]) for byte in bad + BEHIND]
    assert answers(post(b"good"), *singly) == ([200, 400], True)


@pytest.mark.parametrize("name", MALFORMED)
def test_good_requests_before_it_are_answered(name: str) -> None:
    """In one piece with it: they are, and the connection ends then, with or without a refusal."""
    statuses, closed = answers(post(b"one") + post(b"two") + MALFORMED[name] + BEHIND)
    assert statuses[:2] == [200, 200] and statuses[2:] in ([], [400])
    assert closed


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_a_malformed_body_is_refused_and_nothing_behind_it_read(name: str) -> None:
    for parts in (
        [CHUNKED + BAD_CHUNKS[name] + BEHIND],
        [CHUNKED, BAD_CHUNKS[name], BEHIND],
        [bytes([byte]) for byte in CHUNKED + BAD_CHUNKS[name] + BEHIND],
    ):
        statuses, closed = answers(*parts)
        # Begun before the fault came, it ends without an answer of its own.
        assert statuses in ([400], []) and closed


GOOD = {
    "a length with zeros before it": POST + b"content-length: 003\r\n\r\nabc",
    "blanks around the length": POST + b"content-length:  3 \r\n\r\nabc",
    "a length in mixed case": POST + b"conTENT-Length: 3\r\n\r\nabc",
    "chunks in upper and lower case": CHUNKED + b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    "an end of several zeros": CHUNKED + b"3\r\nabc\r\n000\r\n\r\n",
    "extensions": CHUNKED + b'3;a;b=c;d="e \\"f"\r\nabc\r\n0\r\n\r\n',
    "trailers": CHUNKED + b"3\r\nabc\r\n0\r\nvary: *\r\nhost: evil\r\n\r\n",
    "chunked in upper case": POST + b"Transfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "an empty line before": b"\r\n" + GET + b"\r\n",
    "an empty value": GET + b"foo:\r\n\r\n",
    "an expectation": POST + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("name", GOOD)
def test_odd_but_good_requests_are_answered_and_the_next_one_too(name: str) -> None:
    for parts in ([GOOD[name]], [bytes([byte]) for byte in GOOD[name]]):
        statuses, closed = answers(*parts, post(b"next"))
        assert [status for status in statuses if status != 100] == [200, 200] and not closed
