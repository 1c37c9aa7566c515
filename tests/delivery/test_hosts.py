"""Whatever a resolver takes for an address is that address to us, or is refused."""

import asyncio
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from courier.core.errors import InvalidRequest
from courier.delivery import targets
from courier.delivery.targets import BadHost, TargetRefused, Targets, check_url, networks
from courier.delivery.transport import HttpTransport, PushRequest, PushResult, Target
from tests.delivery.receiver import Receiver

DIGITS = "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19"
FULL_WIDTH = str.maketrans("0123456789.", f"{DIGITS}\u3002")
INSIDE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
    *("100.64.0.1", "172.16.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
]


def resolved(host: str) -> set[targets.Address]:
    """What the system connects to when it is given this host, without asking a name server."""
    found: set[targets.Address] = set()
    with suppress(OSError, ValueError):
        found.add(IPv4Address(socket.inet_aton(host)))
    with suppress(OSError, ValueError):
        for _, _, _, _, place in socket.getaddrinfo(host, 80, flags=socket.AI_NUMERICHOST):
            found.add(ip_address(str(place[0]).partition("%")[0]))
    return found


def agrees(host: str) -> None:
    """Never taken for a name, nor for another address than the system takes it for."""
    real = resolved(host)
    try:
        ours = targets.host_address(host)
    except BadHost:
        return
    # Some resolvers know an address with a dot behind it, this one does not.
    assert real <= {ours}, (host, real, ours)


@st.composite
def spelled(draw: st.DrawFn, values: st.SearchStrategy[int]) -> tuple[IPv4Address, str]:
    """An address in any spelling of inet_aton: one to four parts, each in any base."""
    value = draw(values)
    count = draw(st.integers(1, 4))
    parts = [value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255]
    last = value & (1 << 8 * (5 - count)) - 1 if count > 1 else value
    shown = []
    for part in [*parts[: count - 1], last]:
        form = draw(st.sampled_from(["{}", "0{:o}", "0x{:x}", "0X{:X}", "00{:o}", "0x000{:x}"]))
        shown.append(form.format(part))
    text = ".".join(shown) + draw(st.sampled_from(["", "", "."]))
    if draw(st.booleans()) and "x" not in text.lower():
        text = text.translate(FULL_WIDTH)
    return IPv4Address(value), text


@settings(max_examples=2_000)
@given(spelled(st.integers(0, 2**32 - 1)))
@example((IPv4Address("127.0.0.1"), "127.1"))
def test_every_spelling_is_read_as_the_address_that_it_is(
    known: tuple[IPv4Address, str],
) -> None:
    address, text = known
    agrees(text)
    if text.isascii():
        assert targets.host_address(text) == address
        assert targets.host_address(text.upper()) == address
    else:
        with pytest.raises(BadHost):
            targets.host_address(text)


@settings(max_examples=2_000)
@given(st.text("0123456789abcdefxX.:%-_ \t\u3002\uff11\u2460", max_size=40))
@example("127.0.0.1.")
@example("127.0.0.1..")
@example("0x7f.0x1")
@example("1.2.3.4 x")
@example("08.1")
@example("::ffff:127.0.0.1")
@example("::1%lo")
@example("0x")
@example("1.2.3.4%25")
def test_no_text_is_taken_for_something_else_than_the_system_takes_it_for(text: str) -> None:
    agrees(text)


EMBEDDED = [
    *("::ffff:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}", "::ffff:0:{}"),
    "2002:{:04x}:{:04x}::",
]


@settings(max_examples=500)
@given(
    spelled(st.sampled_from([int(IPv4Address(each)) for each in INSIDE])),
    st.sampled_from(["http://{}/", "https://{}:8443/x", "http://{}:80", "HTTP://{}/?a"]),
    st.sampled_from(EMBEDDED),
)
def test_a_private_address_is_refused_in_every_spelling(
    known: tuple[IPv4Address, str], form: str, embedded: str
) -> None:
    address, text = known
    high, low = divmod(int(address), 65_536)
    six = embedded.format(high, low) if "04x" in embedded else embedded.format(address)
    for host in (text, f"[{six}]", f"[{IPv6Address(six).exploded.upper()}]"):
        url = form.format(host)
        with pytest.raises(InvalidRequest):
            check_url(url, Targets(), field="notify_url")
        with pytest.raises((TargetRefused, BadHost)):
            Targets().check_url(url)
        with pytest.raises((TargetRefused, BadHost)):
            asyncio.run(Targets().resolve(host.strip("[]"), 80, 0))


@pytest.mark.parametrize(
    "host",
    ["127.1", "2130706433", "0x7f000001", "017700000001", "127.0.0.1.", "0177.1", "0x7F.0.0.1"],
)
def test_our_own_check_refuses_at_the_call_without_the_clients(
    receiver: Receiver, host: str
) -> None:
    """Even when the client would have called it: the operator allows the address here."""

    async def sent(allowed: str) -> PushResult:
        transport = HttpTransport(Targets(networks(allowed)), connections_max=2)
        try:
            push = PushRequest(Target(f"http://{host}:{receiver.port}/spelled", {}), b"", {})
            return await transport.send(push, timeout_ms=5_000)
        finally:
            await transport.close()

    refused = asyncio.run(sent("10.0.0.0/8"))
    assert (refused.status, refused.error) == (
        0,
        "127.0.0.1 is not a public address; the operator may allow it with push_networks",
    )
    assert receiver.connections == 0


def test_a_socket_is_opened_to_an_address_that_may_be_called_only() -> None:
    """Whatever the client made of the URL: this is the last look before the connection."""
    targets = Targets(networks("127.0.0.0/8"))
    four = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
    targets.open_socket((*four, ("127.0.0.1", 80))).close()
    targets.open_socket((*four, ("8.8.8.8", 80))).close()
    six = socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
    for place in (
        (*four, ("10.0.0.1", 80)),
        (*six, ("::1", 80, 0, 0)),
        (*six, ("fe80::1%lo", 80, 0, 1)),
        (*six, ("::ffff:10.0.0.1", 80, 0, 0)),
    ):
        with pytest.raises(TargetRefused):
            targets.open_socket(place)


def test_a_client_that_skips_every_other_check_is_stopped_at_the_socket(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Targets, "check_url", lambda *_: None)

    async def sent() -> PushResult:
        transport = HttpTransport(Targets(), connections_max=2)
        try:
            # An address in its usual spelling, which the client does not look up.
            push = PushRequest(Target(f"http://127.0.0.1:{receiver.port}/", {}), b"", {})
            return await transport.send(push, timeout_ms=5_000)
        finally:
            await transport.close()

    result = asyncio.run(sent())
    assert result.status == 0
    assert "not a public address" in result.error
    assert receiver.connections == 0
