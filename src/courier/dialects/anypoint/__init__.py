"""Anypoint MQ: the broker, admin and stats APIs, and the account calls that go with them."""

from courier.dialects.anypoint import tokens
from courier.dialects.anypoint.accounts import AccountsSite
from courier.dialects.anypoint.bindings import BindingRoutes
from courier.dialects.anypoint.clients import ClientRoutes
from courier.dialects.anypoint.destinations import DestinationRoutes
from courier.dialects.anypoint.messages import BrokerSite
from courier.dialects.anypoint.site import AnypointSite, Services
from courier.dialects.anypoint.stats import StatsSite


class AdminSite(AnypointSite):
    """The site under /mq/admin/api."""

    prefix = "/mq/admin/api"
    docs_path = "/v1"
    title = "Courier: Anypoint MQ, admin"

    def __init__(self, services: Services) -> None:
        super().__init__(
            services,
            [
                *DestinationRoutes(services).routes(),
                *BindingRoutes(services).routes(),
                *ClientRoutes(services).routes(),
                tokens.app_token(services, "/v1/authorize", with_client=False),
            ],
        )


def sites(services: Services) -> list[AnypointSite]:
    return [
        BrokerSite(services),
        AdminSite(services),
        StatsSite(services),
        AccountsSite(services),
    ]
