"""Where a request came from, when it came through proxies that the operator trusts."""

import ipaddress
import re
from collections.abc import Mapping, Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Proxies in a row; a longer list is not looked at.
HOPS_MAX = 32
# Pairs of one element of Forwarded, which usually has one or two.
PAIRS_MAX = 16
_FOR = re.compile(r'\s*for\s*=\s*("[^"\\]*"|[^\s";,]*)\s*', re.IGNORECASE)


class BadProxies(Exception):
    """`trusted_proxies` is not a list of networks."""


def networks(text: str) -> tuple[Network, ...]:
    """Networks with commas between them. Raises BadProxies."""
    found = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        try:
            found.append(ipaddress.ip_network(word))
        except ValueError as error:
            raise BadProxies(f"trusted_proxies: '{word}' is not a network: {error}") from error
    return tuple(found)


class Proxies:
    """Proxies append the address that they got a request from; ours can be believed.

    So the source is the right-most address that is not one of theirs. Where a header makes no
    sense, or the two headers disagree, the source is the peer itself.
    """

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = tuple(trusted)

    def source(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        if not self._trusted:
            return peer
        address = _address(peer)
        if address is None or not self._trusts(address):
            return peer
        named = [
            self._beyond(hops(headers[name].decode("latin-1")))
            for name, hops in ((b"forwarded", _forwarded), (b"x-forwarded-for", _listed))
            if name in headers
        ]
        if not named or named[0] is None or any(each != named[0] for each in named):
            return str(address)
        return str(named[0])

    def trusts(self, peer: str) -> bool:
        """Whether a peer is one of the proxies."""
        address = _address(peer) if self._trusted else None
        return address is not None and self._trusts(address)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)

    def _beyond(self, hops: list[str]) -> Address | None:
        """The nearest hop that is not one of our proxies; the farthest if all of them are."""
        address = None
        for hop in reversed(hops):
            address = _address(hop)
            if address is None or not self._trusts(address):
                return address
        return address


def _nearest(text: str) -> list[str]:
    return text.rsplit(",", HOPS_MAX)[-HOPS_MAX:]


def _listed(text: str) -> list[str]:
    return [hop.strip() for hop in _nearest(text)]


def _forwarded(text: str) -> list[str]:
    """The `for` of each element; an element without one is a hop that nobody knows."""
    hops = []
    for element in _nearest(text):
        pairs = element.split(";", PAIRS_MAX)
        found = [match for match in map(_FOR.fullmatch, pairs) if match]
        known = len(found) == 1 and len(pairs) <= PAIRS_MAX
        hops.append(found[0][1].strip('"') if known else "")
    return hops


def _address(text: str) -> Address | None:
    """An address as proxies write it: with or without a port, IPv6 in brackets.

    A zone says nothing about where that was, and may be any text of any length.
    """
    if text.startswith("["):
        text, end, port = text[1:].partition("]")
        if not end or (port and not re.fullmatch(r":[0-9]{1,5}", port, re.ASCII)):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
            return None
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
