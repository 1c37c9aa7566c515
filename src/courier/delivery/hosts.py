"""Hosts of URLs: which are names, and which are addresses, in whatever spelling.

Resolvers take 127.1, 2130706433, 0x7f.1 and 017700000001 for 127.0.0.1. What looks like an address
to any of them is one here, or is refused: nothing that ends in a number is ever a name.
"""

import re
import socket
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

_SIX = re.compile(r"[0-9a-f:.]+")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class BadHost(OSError):
    """Neither a name nor an address."""


def labels(host: str) -> list[str]:
    """The labels of a name, in lower case; the dot at its end means nothing."""
    return host.lower().removesuffix(".").split(".")


def address(host: str) -> Address | None:
    """The address that a host is, without brackets; None: a name. Raises BadHost."""
    if ":" in host:
        return _six(host.lower())
    parts = labels(host)
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
