"""Discue: queues that push their messages to listeners, with and without `/v1` before its paths."""

from courier.dialects.discue.api_clients import ApiClientRoutes
from courier.dialects.discue.api_keys import PREFIX, KeyRoutes
from courier.dialects.discue.domains import DomainRoutes
from courier.dialects.discue.events import EventRoutes
from courier.dialects.discue.listeners import ListenerRoutes
from courier.dialects.discue.messages import DiscueMessageRoutes
from courier.dialects.discue.queues import DiscueQueueRoutes
from courier.dialects.discue.site import Discue, DiscueServices


def sites(services: DiscueServices) -> list[Discue]:
    routes = [
        route
        for family in (
            DiscueQueueRoutes(services),
            ListenerRoutes(services),
            DiscueMessageRoutes(services),
            KeyRoutes(services),
            ApiClientRoutes(services),
            DomainRoutes(services),
            EventRoutes(services),
        )
        for route in family.table()
    ]
    return [Discue(services, routes, prefix=PREFIX), Discue(services, routes, prefix="")]
