"""Organizations, environments and regions: what Anypoint's paths say, and what the core says.

An environment is a tenant, and both ids are the tenant's written as UUIDs. The core knows no
regions: outside the server's own region a name carries its region, `orders@eu-west-1`, which no
name that Anypoint lets anyone create can look like.
"""

import re
from functools import lru_cache

from msgspec import Struct

from courier.core.errors import InvalidRequest, NotFound
from courier.core.types import Tenant

# Each region, and the one that upstream falls back to.
REGIONS = {
    "us-east-1": "us-east-2",
    "us-east-2": "us-west-2",
    "us-west-2": "ca-central-1",
    "ca-central-1": "us-east-1",
    "eu-west-1": "eu-west-2",
    "eu-west-2": "eu-west-1",
    "eu-central-1": "eu-west-1",
    "ap-southeast-1": "ap-northeast-1",
    "ap-southeast-2": "ap-southeast-1",
    "ap-northeast-1": "ap-southeast-2",
    "us-gov-west-1": None,
}
NAME_CHARACTERS_MAX = 127
UUID_CHARACTERS = 36
_NAME = re.compile(r"[A-Za-z0-9.-]{1,127}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_HOST = re.compile(r"mq-([a-z0-9-]+)\.", re.IGNORECASE)


def uuid_text(id: str) -> str:
    return f"{id[:8]}-{id[8:12]}-{id[12:16]}-{id[16:20]}-{id[20:]}"


def id_of(text: str) -> str:
    """The id that a UUID in a path stands for; "" for what is none of ours."""
    return _id_of(text) if len(text) == UUID_CHARACTERS else ""


@lru_cache(maxsize=4_096)
def _id_of(text: str) -> str:
    return text.lower().replace("-", "") if _UUID.fullmatch(text.lower()) else ""


def _host_region(host: str) -> str:
    match = _HOST.match(host)
    region = match[1].lower() if match else ""
    return region if region in REGIONS else ""


def environment_id(tenant: Tenant) -> str:
    return uuid_text(tenant.id)


def organization_id(tenant: Tenant) -> str:
    return uuid_text(tenant.organization)


class Regions(Struct, frozen=True):
    """`own` is the region of names that carry none."""

    own: str

    def known(self, region: str) -> str:
        if region not in REGIONS:
            raise NotFound("region", region)
        return region

    def of_host(self, host: str) -> str:
        """The region that a client means by the host it calls."""
        return _host_region(host) or self.own

    def name(self, destination: str, region: str) -> str:
        """The core's name for a destination; "" for what only looks like one of this region."""
        if region != self.own:
            return f"{destination}@{region}"
        return destination if self.destination(destination)[1] == region else ""

    def destination(self, name: str) -> tuple[str, str]:
        """Destination and region of what has this name in the core."""
        destination, _, region = name.rpartition("@")
        if destination and region in REGIONS and region != self.own:
            return destination, region
        return name, self.own


def checked_name(destination: str, field: str) -> str:
    """A name that may be created."""
    if not _NAME.fullmatch(destination):
        raise InvalidRequest(
            field,
            f"must have 1 to {NAME_CHARACTERS_MAX} of the characters A-Z a-z 0-9 . and -, "
            f"not '{destination[:NAME_CHARACTERS_MAX]}'",
        )
    return destination
