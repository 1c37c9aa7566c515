"""Who may look at a plan, and who may make, run and undo it: by every queue that it touches."""

from msgspec import Struct

from courier.console import operates
from courier.console.plans import Action, Plan
from courier.console.queue import may
from courier.core.errors import Forbidden
from courier.core.types import Key, Scope


class Permit(Struct, frozen=True):
    """What an action takes: scopes on all its queues, beside that of the route.

    `limited`: keys that reach all its queues may; else only those without limits. `operator`: only
    the operator may.
    """

    scopes: tuple[Scope, ...] = ()
    limited: bool = False
    operator: bool = False


# Every action needs a line here; one without is for nobody.
PERMITS: dict[Action, Permit] = {
    "delete": Permit(limited=True),
    "purge": Permit(limited=True),
    "redrive": Permit(limited=True),
    "retry_pushes": Permit(("listeners:write",), limited=True),
    "backfill": Permit(("listeners:write",), limited=True),
    "delete_queue": Permit(limited=True),
    "put_back": Permit(("messages:publish",), limited=True),
    "take_back": Permit(("messages:publish",), limited=True),
    # A new queue, and bindings and dead letters of others.
    "create_again": Permit(("messages:publish",)),
    # The lake shows the messages of every queue.
    "replay": Permit(("journal", "messages:read", "messages:publish")),
    "delete_key": Permit(operator=True),
    "delete_tenant": Permit(operator=True),
}


def targets(plan: Plan) -> list[str]:
    """Every queue (id) that a limited key has to reach for it; "", which none does, if none may."""
    permit = PERMITS.get(plan.action)
    if permit is None or not permit.limited or not plan.queues or plan.touched is None:
        return [""]
    return [*(queue for queue, _ in plan.queues), *plan.touched]


def of_operator(plan: Plan) -> bool:
    """Whether nobody else may see it."""
    permit = PERMITS.get(plan.action)
    return permit is None or permit.operator


def check(key: Key | None, plan: Plan) -> None:
    """Raises Forbidden unless the key has the scopes of the action wherever it acts."""
    permit = PERMITS.get(plan.action)
    if permit is None or (permit.operator and (key is None or not operates(key))):
        raise Forbidden("admin")
    for scope in permit.scopes:
        if not all(may(key, scope, queue) for queue in targets(plan)):
            raise Forbidden(scope)


def readable(key: Key | None, plan: Plan) -> bool:
    """Whether the key may see messages that it chose."""
    return all(may(key, "messages:read", queue) for queue in targets(plan))
