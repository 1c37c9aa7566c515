"""Environments, apps and tokens that belong to somebody else."""

from urllib.parse import quote

from tests.attack.environment import (
    Spot,
    complained,
)


def test_key_that_is_no_client_app_cannot_be_deleted_as_one(spot: Spot) -> None:
    """Users and connected apps are keys too, but not this API's."""
    own = spot.environment
    for id in (own.own["connected_app"]["client_id"], own.own["user"]["username"]):
        path = f"//mq/admin/api/v1{own.place}/clients/{quote(id, safe='')}"
        for method in ("POST", "DELETE"):
            complained(own.admin.ask(method, path), 404)
    assert own.token("/accounts/login", own.own["user"])
    assert own.token("/accounts/api/v2/oauth2/token", own.own["connected_app"])
