"""Which URLs a listener may have: judged when it is made, long before the first push.

The address that a name stands for is judged by `targets.py`, at every connection.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from msgspec import Struct

from courier.core.domains import Domains
from courier.core.errors import InvalidRequest
from courier.delivery.targets import (
    Address,
    BadHost,
    TargetRefused,
    Targets,
    host_address,
    host_labels,
)

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
        check(url, self.targets, field=field)
        host, port = host_and_port(url)
        if self.domains is not None and not self.domains.covers(tenant, host, port):
            raise InvalidRequest(field, f"{host}:{port} is not one of your domains")


def check(url: str, targets: Targets, *, field: str) -> None:
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
