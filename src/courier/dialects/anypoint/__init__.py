"""Anypoint MQ: the broker, admin and stats APIs, and the account calls that go with them."""

from courier.dialects.anypoint import tokens
from courier.dialects.anypoint.accounts import AccountsSite
from courier.dialects.anypoint.bindings import BindingRoutes
from courier.dialects.anypoint.clients import ClientRoutes
from courier.dialects.anypoint.destinations import DestinationRoutes
from courier.dialects.anypoint.messages import BrokerSite
from courier.dialects.anypoint.site import AnypointServices, AnypointSite
from courier.dialects.anypoint.stats import StatsSite


class AdminSite(AnypointSite):
    """The site under /mq/admin/api."""

    prefix = "/mq/admin/api"
    docs_path = "/v1"
    title = "Courier: Anypoint MQ, admin"

    def __init__(self, services: AnypointServices) -> None:
        families = (DestinationRoutes(services), BindingRoutes(services), ClientRoutes(services))
        routes = [route for family in families for route in family.table()]
        token = tokens.app_token(services, "/v1/authorize", with_client=False)
        super().__init__(services, [*routes, token])


def sites(services: AnypointServices) -> list[AnypointSite]:
    return [
        BrokerSite(services),
        AdminSite(services),
        StatsSite(services),
        AccountsSite(services),
    ]
