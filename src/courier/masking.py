"""Passwords in addresses: hidden wherever an address is shown, also where it is misspelt.

When in doubt, all of an address is hidden: a password that was not percent-encoded can stand in
any part of it.
"""

import re

HIDDEN = "********"

_HOSTS = re.compile(r"(?:(?:\[[0-9A-Fa-f:.%]*\]|[^\s:@\[\],]*)(?::[0-9]*)?(?:,(?!$)|$))*")
_NAMED = re.compile(r"(\s*[^=,:\s]*=\s*)?([A-Za-z][A-Za-z0-9+.-]*://.*)", re.DOTALL)
_IN_TEXT = re.compile(r"(?<=://)[^\s'\"]*@")


def masked_url(url: str) -> str:
    """The address without user, password and query; all of it is hidden if it has odd parts."""
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    tail = rest[len(authority) :]
    user, at, place = authority.rpartition("@")
    path = re.split(r"[?#]", tail, maxsplit=1)[0]
    if "@" in tail or not _HOSTS.fullmatch(place):
        return f"{scheme}://{HIDDEN}"
    query = tail[len(path) : len(path) + 1] + HIDDEN if tail != path else ""
    return f"{scheme}://{HIDDEN if user else ''}{at}{place}{path}{query}"


def masked(value: str) -> str:
    """A setting: text, one address, or several as name=address with commas between."""
    if "://" not in value:
        # Such as the words of a database: host=... password=...
        return HIDDEN if re.search(r"[@=\s]", value) else value
    parts = value.split(",")
    found = [_NAMED.fullmatch(part) for part in parts]
    if all(each and each[1] for each in found):
        return ",".join(each[1] + masked_url(each[2]) for each in found if each)
    whole = _NAMED.fullmatch(value)
    return (whole[1] or "") + masked_url(whole[2]) if whole else HIDDEN


def scrubbed(text: str) -> str:
    """Any text, with what stands before the host of an address hidden."""
    return _IN_TEXT.sub(f"{HIDDEN}@", text) if "@" in text else text
