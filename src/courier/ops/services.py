"""What the handlers of our own routes work with."""

from courier.core.announcer import Announcer
from courier.core.sweeper import Sweeper
from courier.core.types import Queue
from courier.credentials import Credentials
from courier.delivery.liveness import PushServices
from courier.delivery.places import Places
from courier.delivery.targets import Rules
from courier.dialects.site import Family, SiteServices
from courier.telemetry import Telemetry
from courier.web import Call


class OpsServices(SiteServices, frozen=True, kw_only=True):
    telemetry: Telemetry
    sweeper: Sweeper
    credentials: Credentials
    places: Places
    announcer: Announcer
    pushes: PushServices
    listener_urls: Rules
    journal_page_max: int
    metrics_public: bool


class OpsFamily(Family[OpsServices]):
    def _tenant(self, call: Call) -> str:
        """The id of the tenant that the path names."""
        return self._admin.tenant(call.params["tenant"]).id

    def _queue(self, call: Call) -> Queue:
        return self._admin.queue_named(self._tenant(call), call.params["queue"])
