"""Which addresses may be called, however they are written."""

import asyncio
import socket
from ipaddress import ip_address

import pytest

from courier.delivery.targets import BadNetwork, TargetRefused, Targets, networks
from courier.delivery.transport import HttpTransport, PushRequest, PushResult, Target
from tests.delivery.names import NamesLoop, look, run_with_names
from tests.delivery.receiver import Receiver

PUBLIC = ["8.8.8.8", "93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::200e"]
DANGEROUS = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255"),
    *("172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "100.64.0.1"),
    *("100.100.100.200", "169.254.0.1", "169.254.169.254", "169.254.170.2", "192.0.0.1"),
    *("192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1"),
    *("::10.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1"),
    *("::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1"),
    *("64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "2001::1"),
    *("2001:0:7f00:1::", "2001:db8::1", "3fff::1", "100::1", "fc00::1", "fd00::1", "fd00:ec2::254"),
    *("fe80::1", "fec0::1", "ff02::1", "ff0e::1", "5f00::1"),
]  # fmt: skip
# Spellings of 127.0.0.1 that some resolvers understand.
NUMBERS = [
    *("2130706433", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "0x7f.1"),
    *("017700000001", "127.0.0.01", "127.000.000.001", "127.0.0.1.", "00000177.1", "0", "0x0"),
]


@pytest.mark.parametrize("address", DANGEROUS)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(TargetRefused):
        Targets().check(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address: str) -> None:
    Targets().check(ip_address(address))


@pytest.mark.parametrize(
    ("allowed", "address"),
    [
        ("127.0.0.0/8", "127.0.0.1"),
        ("127.0.0.0/8", "::ffff:127.0.0.1"),
        ("10.1.0.0/16, 192.168.0.0/24", "192.168.0.9"),
        ("fd00::/8", "fd00::9"),
        ("::1/128", "::1"),
        ("169.254.169.254/32", "169.254.169.254"),
        ("64:ff9b::/96", "64:ff9b::1"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_the_operator_may_allow_a_network(allowed: str, address: str) -> None:
    Targets(networks(allowed)).check(ip_address(address))


@pytest.mark.parametrize("address", ["10.2.0.1", "127.0.0.1", "::1", "fd01::1", "64:ff9b::a01:1"])
def test_what_is_beside_an_allowed_network_stays_refused(address: str) -> None:
    with pytest.raises(TargetRefused):
        Targets(networks("10.1.0.0/16,fd00::/16")).check(ip_address(address))


def test_no_networks_at_all_are_allowed_by_an_empty_setting() -> None:
    assert networks("") == networks(" , ") == []


@pytest.mark.parametrize(
    "text", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0.0/8;", "::/200"]
)
def test_a_network_that_cannot_be_read_is_said_so(text: str) -> None:
    with pytest.raises(BadNetwork, match="push_networks"):
        networks(text)


# --- as the transport uses them ---


async def sent(url: str, *, allowed: str = "") -> PushResult:
    transport = HttpTransport(Targets(networks(allowed), look), connections_max=10)
    try:
        return await transport.send(PushRequest(Target(url, {}), b"body", {}), timeout_ms=5_000)
    finally:
        await transport.close()


async def looked_at(url: str, *, allowed: str = "") -> PushResult:
    transport = HttpTransport(Targets(networks(allowed), look), connections_max=10)
    try:
        return await transport.get(url, timeout_ms=5_000)
    finally:
        await transport.close()


HOSTS = [
    *[f"[{address}]" if ":" in address else address for address in DANGEROUS],
    *NUMBERS,
    *("localhost", "LOCALHOST", "localhost.", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]"),
    *("[::1%25lo]", "[fe80::1%25lo]", "[::1%lo]"),
    *("①②⑦.⓪.⓪.①", "127。0。0。1", "\uff11\uff12\uff17.0.0.1"),
]


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_is_sent_to_a_dangerous_host_in_whatever_spelling(
    receiver: Receiver, host: str
) -> None:
    url = f"http://{host}:{receiver.port}/dangerous"
    for result in (asyncio.run(sent(url)), asyncio.run(looked_at(url))):
        assert (result.status, bool(result.error)) == (0, True), result
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1\\@example.invalid:{port}/",
        *("http://example.invalid\\@127.0.0.1:{port}/", "http://example.invalid@127.0.0.1:{port}/"),
        *("http://example.invalid:80@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@8.8.8.8/"),
        *("http://127.0.0.1:{port}?@8.8.8.8/", "http://127.0.0.1:{port}/@8.8.8.8/"),
        *("http://127.0.0.1\t:{port}/", "http://127.0.\n0.1:{port}/", "http:\\\\127.0.0.1:{port}/"),
        *("http:/127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "//127.0.0.1:{port}/"),
        *("HTTP://127.0.0.1:{port}/", "http://[127.0.0.1]:{port}/"),
        *("http://[::ffff:127.0.0.1]:{port}/", "http://%31%32%37.0.0.1:{port}/"),
        *("http://127%2e0%2e0%2e1:{port}/", "ftp://127.0.0.1:{port}/", "file:///etc/passwd"),
        *("unix:///run/x.sock", "http://:{port}/", "http://", "", "/path", "http://[::1"),
        *("http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "http://127.0.0.1:x/"),
        *("http://" + "a" * 300 + "/", "http://" + "a." * 2_000 + "/", "http://\ud800/"),
        *("http://a..b/", "http://xn--/", "http://\x00/"),
    ],
)
def test_a_url_that_one_reader_takes_for_another_place_reaches_nothing(
    receiver: Receiver, url: str
) -> None:
    """And whatever is wrong with it is a result, not an exception."""
    url = url.format(port=receiver.port)
    for result in (asyncio.run(sent(url)), asyncio.run(looked_at(url))):
        assert (result.status, bool(result.error)) == (0, True), result
    assert receiver.connections == 0


@pytest.mark.parametrize("address", [a for a in DANGEROUS if a not in ("255.255.255.255",)])
def test_a_name_that_stands_for_a_dangerous_address_is_refused(
    receiver: Receiver, address: str
) -> None:
    async def main(loop: NamesLoop) -> PushResult:
        return await sent(f"http://inside.example:{receiver.port}/")

    result = run_with_names({"inside.example": [[address]]}, main)
    assert result.status == 0
    assert "not a public address" in result.error
    assert receiver.connections == 0


@pytest.mark.parametrize("addresses", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"]])
def test_a_name_that_stands_for_both_kinds_is_refused(
    receiver: Receiver, addresses: list[str]
) -> None:
    async def main(loop: NamesLoop) -> PushResult:
        return await sent(f"http://both.example:{receiver.port}/")

    result = run_with_names({"both.example": [addresses]}, main)
    assert "not a public address" in result.error
    assert receiver.connections == 0


def test_every_address_of_a_name_is_checked_before_it_is_called() -> None:
    """Not only the one that the client would choose."""

    async def main(loop: NamesLoop) -> None:
        with pytest.raises(TargetRefused, match="not a public address"):
            await Targets(look=look).resolve("both.example", 80, socket.AF_UNSPEC)

    run_with_names({"both.example": [["8.8.8.8", "127.0.0.1"]]}, main)


def test_a_name_that_changes_its_mind_gains_nothing(receiver: Receiver) -> None:
    """It is looked up once, and the connection goes to the address that was checked.

    127.0.0.1 is where the receiver listens and is allowed; 127.0.0.2, where it would go next, is
    not, and so on in turn.
    """

    async def main(loop: NamesLoop) -> list[PushResult]:
        url = f"http://fickle.example:{receiver.port}/fickle"
        results = [await sent(url, allowed="127.0.0.1/32") for _ in range(4)]
        assert loop.looked_up == ["fickle.example"] * 4
        return results

    fickle = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2"]]
    results = run_with_names({"fickle.example": list(fickle)}, main)
    assert [result.status for result in results] == [200, 0, 200, 0]
    assert [each.headers["host"] for each in receiver.received("/fickle")] == [
        f"fickle.example:{receiver.port}"
    ] * 2


def test_the_connection_goes_to_the_checked_address_and_not_to_a_later_one() -> None:
    """Two receivers on one port: the name points to the second as soon as it was looked at."""
    with Receiver() as good, Receiver(port=good.port, host="127.0.0.2") as bad:

        async def main(loop: NamesLoop) -> PushResult:
            return await sent(f"http://fickle.example:{good.port}/x", allowed="127.0.0.1/32")

        result = run_with_names({"fickle.example": [["127.0.0.1"], ["127.0.0.2"]]}, main)
        assert result.status == 200
        assert (len(good.received("/x")), bad.connections) == (1, 0)


def test_a_name_that_is_not_there_is_a_result() -> None:
    async def main(loop: NamesLoop) -> PushResult:
        return await sent("http://nowhere.example/")

    result = run_with_names({}, main)
    assert (result.status, bool(result.error)) == (0, True)


def test_an_allowed_host_is_called_by_name_and_by_address(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost"):
        url = f"http://{host}:{receiver.port}/allowed"
        assert asyncio.run(sent(url, allowed="127.0.0.0/8,::1/128")).status == 200
    assert len(receiver.received("/allowed")) == 2


def test_the_operators_own_urls_may_be_anywhere(receiver: Receiver) -> None:
    async def main() -> PushResult:
        transport = HttpTransport(Targets(), connections_max=10)
        try:
            push = PushRequest(Target(receiver.url("/trusted"), {}, trusted=True), b"body", {})
            return await transport.send(push, timeout_ms=5_000)
        finally:
            await transport.close()

    assert asyncio.run(main()).status == 200


def test_this_machine_has_the_loopback_addresses_that_these_tests_need() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
