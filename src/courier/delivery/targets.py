"""Which addresses may be called.

A name is resolved once, the addresses it stands for are checked, and the connection goes to one
of those: a name that points elsewhere a moment later gains nothing. The socket checks its address
once more, so that nothing depends on how the client reads a URL.
"""

import re
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from courier.core.domains import Domains
from courier.core.errors import InvalidRequest
from courier.delivery.lookups import Look, Lookups

Address = IPv4Address | IPv6Address

_SIX = re.compile(r"[0-9a-f:.]+")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class BadHost(OSError):
    """Neither a name nor an address."""


def host_labels(host: str) -> list[str]:
    """The labels of a name, in lower case; the dot at its end means nothing."""
    return host.lower().removesuffix(".").split(".")


def host_address(host: str) -> Address | None:
    """The address that a host is, without brackets; None: a name. Raises BadHost.

    Resolvers take 127.1, 2130706433, 0x7f.1 and 017700000001 for 127.0.0.1. What looks like an
    address to any of them is one here, or is refused: nothing that ends in a number is ever a name.
    """
    if ":" in host:
        return _six(host.lower())
    parts = host_labels(host)
    if not all(_LABEL.fullmatch(label) for label in parts):
        raise BadHost(f"{host[:100]!a} is neither a name nor an address")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    try:
        return IPv4Address(socket.inet_aton(".".join(parts)))
    except OSError:
        raise BadHost(f"{host} ends in a number, and is no address") from None


def _six(host: str) -> IPv6Address:
    try:
        # No zone: that is a way to a network of this machine's.
        if not _SIX.fullmatch(host):
            raise ValueError
        return IPv6Address(host)
    except ValueError:
        raise BadHost(f"{host[:100]!a} is no address") from None


Network = IPv4Network | IPv6Network

# Of IPv6, what can be a public host at all: no address of another kind, however it is spelled.
_UNICAST = ip_network("2000::/3")
# Global by Python's word or within the above, and yet ways into a network of the operator's, or
# for documentation only.
_SPECIAL = [
    ip_network("192.0.0.0/24"),
    ip_network("192.88.99.0/24"),
    ip_network("2001::/32"),
    ip_network("2002::/16"),
    ip_network("3fff::/20"),
]


class TargetRefused(OSError):
    """The address may not be called."""


class BadNetwork(Exception):
    """What the operator allows cannot be read; the message is one sentence."""


class Resolved(Struct, frozen=True):
    """An address that may be called; family and protocol as sockets number them."""

    address: str
    family: int
    protocol: int


class Targets:
    """Resolves names to addresses that may be called."""

    def __init__(self, allowed: Sequence[Network] = (), look: Look | None = None) -> None:
        self._allowed = tuple(allowed)
        self._lookups = Lookups(look)

    def check(self, address: Address) -> None:
        """Raises TargetRefused for whatever is not a public address, unless it is allowed."""
        inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        real = inner or address
        if any(real in network for network in self._allowed if network.version == real.version):
            return
        special = any(real in network for network in _SPECIAL if network.version == real.version)
        unicast = real.version == 4 or real in _UNICAST
        if not real.is_global or real.is_multicast or special or not unicast:
            raise TargetRefused(
                f"{address} is not a public address; the operator may allow it with push_networks"
            )

    def check_url(self, url: str) -> None:
        """Raises TargetRefused or BadHost when the URL names an address that may not be called."""
        address = host_address(urlsplit(url).hostname or "")
        if address is not None:  # a name is judged once it is resolved
            self.check(address)

    def open_socket(self, place: tuple[Any, ...]) -> socket.socket:
        """For a connection to an entry of `getaddrinfo`. Raises TargetRefused."""
        family, kind, protocol, _, where = place
        self.check(ip_address(str(where[0]).partition("%")[0]))
        return socket.socket(family, kind, protocol)

    async def resolve(self, host: str, port: int, family: int) -> list[Resolved]:
        """What a host stands for. Raises TargetRefused, or OSError when it stands for nothing."""
        spelled = host_address(host)
        if spelled is not None:
            self.check(spelled)
            kind = socket.AF_INET if spelled.version == 4 else socket.AF_INET6
            return [Resolved(str(spelled), kind, socket.IPPROTO_TCP)]
        found = []
        for kind, _, protocol, _, place in await self._lookups.find(host, port, int(family)):
            address = str(place[0])
            self.check(ip_address(address.partition("%")[0]))
            found.append(Resolved(address, kind, protocol))
        return found


def networks(text: str) -> list[Network]:
    """Networks written with commas between them; raises BadNetwork."""
    try:
        return [ip_network(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise BadNetwork(f"push_networks must be networks with commas between: {error}") from None


URL_CHARACTERS = (4, 253)
_LOOPBACK = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_PLACE = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
)


class Rules(Struct, frozen=True):
    """Where listeners may be: on hosts that `targets` allows and, if given, one of `domains`."""

    targets: Targets
    domains: Domains | None

    def check(self, url: str, tenant: str, *, field: str) -> None:
        """Raises InvalidRequest for a URL that will not be called."""
        check_url(url, self.targets, field=field)
        host, port = host_and_port(url)
        if self.domains is not None and not self.domains.covers(tenant, host, port):
            raise InvalidRequest(field, f"{host}:{port} is not one of your domains")


def check_url(url: str, targets: Targets, *, field: str) -> None:
    """Raises InvalidRequest for a URL that will never be called."""
    low, high = URL_CHARACTERS
    if not low <= len(url) <= high:
        raise InvalidRequest(field, f"must have {low} to {high} characters, not {len(url)}")
    problem = _problem(url, targets)
    if problem:
        raise InvalidRequest(field, problem)


def host_and_port(url: str) -> tuple[str, int]:
    """Where a URL that passed `check` leads to."""
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return (parts.hostname or "").removesuffix("."), parts.port or default


def _problem(url: str, targets: Targets) -> str:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "must have no spaces, backslashes, control or non-ASCII characters"
    if "#" in url:
        return "must have no fragment"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return "must be an absolute http:// or https:// URL with a host"
    if "@" in parts.netloc:
        return "must have no user name or password; see auth"
    place = _PLACE.fullmatch(parts.netloc)
    if place is None:
        return "has no valid host and port"
    if place["port"] and not 1 <= int(place["port"]) <= 65_535:
        return f"has a port, {place['port']}, that is not from 1 to 65535"
    try:
        return _host_problem(place["six"], place["name"], targets)
    except (TargetRefused, BadHost) as refused:
        return f"has a host that cannot be called: {refused}"


def _host_problem(six: str | None, name: str, targets: Targets) -> str:
    """Raises TargetRefused when the host is an address that is not allowed, and BadHost."""
    address = host_address(six or name)
    if address is not None:
        targets.check(address)
        return ""
    labels = host_labels(name)
    local = ".".join(labels) in _LOOPBACK_NAMES or labels[-1] == "localhost"
    if local and not any(_allowed(address, targets) for address in _LOOPBACK):
        allowed = "the operator may allow it with push_networks"
        return f"has a host, {name}, that is this machine; {allowed}"
    return ""


def _allowed(address: Address, targets: Targets) -> bool:
    try:
        targets.check(address)
    except TargetRefused:
        return False
    return True
