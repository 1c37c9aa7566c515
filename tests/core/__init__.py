"""The pure rules: no store, no server, no waiting."""

from courier.core.types import OPERATOR, Tenant


def tenants(*ids: str) -> list[Tenant]:
    """Without its tenant nothing of a tenant is created."""
    return [Tenant(id=id, tenant=OPERATOR, name=id, created_ms=1, organization=id) for id in ids]
