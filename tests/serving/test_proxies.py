"""Where a request came from, by what trusted proxies say."""

import time

import pytest

from courier import proxies
from courier.proxies import BadProxies, Proxies, networks

TRUSTED = Proxies(networks("10.0.0.0/8, 192.168.1.1, fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "headers", "source"),
    [
        # Nobody is believed but the proxies.
        ("203.0.113.9", {b"x-forwarded-for": b"198.51.100.1"}, "203.0.113.9"),
        ("203.0.113.9", {b"forwarded": b"for=198.51.100.1"}, "203.0.113.9"),
        ("10.0.0.1", {}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.1"}, "198.51.100.1"),
        ("fd00::1", {b"x-forwarded-for": b"198.51.100.1"}, "198.51.100.1"),
        ("::ffff:10.0.0.1", {b"x-forwarded-for": b"198.51.100.1"}, "198.51.100.1"),
        # The right-most address that is not a proxy's: what stands left of it anyone can write.
        ("10.0.0.1", {b"x-forwarded-for": b"1.1.1.1, 198.51.100.1"}, "198.51.100.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"1.1.1.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"nonsense, 198.51.100.1"}, "198.51.100.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"10.0.0.3, 10.0.0.2"}, "10.0.0.3"),
        # With ports, in brackets, mapped.
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.1:4711"}, "198.51.100.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"2001:db8::1"}, "2001:db8::1"),
        ("10.0.0.1", {b"x-forwarded-for": b"[2001:db8::1]:4711"}, "2001:db8::1"),
        ("10.0.0.1", {b"x-forwarded-for": b"::ffff:198.51.100.1"}, "198.51.100.1"),
        ("10.0.0.1", {b"forwarded": b"for=198.51.100.1;proto=https"}, "198.51.100.1"),
        ("10.0.0.1", {b"forwarded": b'FOR="[2001:db8::1]:4711"'}, "2001:db8::1"),
        ("10.0.0.1", {b"forwarded": b"for=1.1.1.1, for=198.51.100.1"}, "198.51.100.1"),
        ("10.0.0.1", {b"forwarded": b"for=198.51.100.1, for=10.0.0.2"}, "198.51.100.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"fe80::1%eth0"}, "fe80::1"),
        ("10.0.0.1", {b"x-forwarded-for": b"[fe80::1%" + b"z" * 9_000 + b"]:1"}, "fe80::1"),
        ("fd00::1%eth0", {b"x-forwarded-for": b"198.51.100.1"}, "198.51.100.1"),
        # What makes no sense is not believed.
        ("10.0.0.1", {b"x-forwarded-for": b""}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.1, nonsense"}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.1,"}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.1:x"}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"198.51.100"}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"[2001:db8::1"}, "10.0.0.1"),
        ("10.0.0.1", {b"x-forwarded-for": b"\xff\x00"}, "10.0.0.1"),
        ("10.0.0.1", {b"forwarded": b"by=198.51.100.1"}, "10.0.0.1"),
        ("10.0.0.1", {b"forwarded": b"for=unknown"}, "10.0.0.1"),
        ("10.0.0.1", {b"forwarded": b"for=_hidden"}, "10.0.0.1"),
        ("10.0.0.1", {b"forwarded": b'for="198.51.100.1'}, "10.0.0.1"),
        ("10.0.0.1", {b"forwarded": b"for=1.1.1.1;for=198.51.100.1"}, "10.0.0.1"),
        # A proxy writes one of the two; the other may be the client's own.
        (
            "10.0.0.1",
            {b"x-forwarded-for": b"198.51.100.1", b"forwarded": b"for=198.51.100.1"},
            "198.51.100.1",
        ),
        (
            "10.0.0.1",
            {b"x-forwarded-for": b"198.51.100.1", b"forwarded": b"for=1.1.1.1"},
            "10.0.0.1",
        ),
        (
            "10.0.0.1",
            {b"x-forwarded-for": b"198.51.100.1", b"forwarded": b"nonsense"},
            "10.0.0.1",
        ),
    ],
)
def test_source_is_the_nearest_hop_that_is_no_trusted_proxy(
    peer: str, headers: dict[bytes, bytes], source: str
) -> None:
    assert TRUSTED.source(peer, headers) == source


def test_without_trusted_proxies_the_peer_is_the_source() -> None:
    headers = {b"x-forwarded-for": b"198.51.100.1", b"forwarded": b"for=198.51.100.1"}
    assert Proxies().source("127.0.0.1", headers) == "127.0.0.1"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "example.org", "10.0.0.0/33", "10.0.0.0/8 x"])
def test_networks_must_be_networks(text: str) -> None:
    with pytest.raises(BadProxies, match="trusted_proxies"):
        networks(text)


def test_no_networks_are_none() -> None:
    assert networks("") == networks(" , ") == ()


@pytest.mark.parametrize("text", [b"," * 60_000, b"for=1.1.1.1," * 5_000, b";" * 60_000])
@pytest.mark.parametrize("name", [b"forwarded", b"x-forwarded-for"])
def test_a_long_header_takes_no_longer_than_a_short_one(name: bytes, text: bytes) -> None:
    """A stranger writes it, and it is read before anything else of the request."""
    took_s = []
    for _ in range(3):
        began_s = time.process_time()
        TRUSTED.source("10.0.0.1", {name: text})
        took_s.append(time.process_time() - began_s)
    assert min(took_s) < 0.003


def test_no_more_than_the_nearest_hops_are_looked_at() -> None:
    hops = b"198.51.100.1" + b", 10.0.0.2" * proxies.HOPS_MAX
    for name, text in (
        (b"x-forwarded-for", hops),
        (b"forwarded", hops.replace(b"1", b"for=1", 1).replace(b", ", b", for=")),
    ):
        assert TRUSTED.source("10.0.0.1", {name: text}) == "10.0.0.2"
        nearer = text.rpartition(b",")[0]
        assert TRUSTED.source("10.0.0.1", {name: nearer}) == "198.51.100.1"
