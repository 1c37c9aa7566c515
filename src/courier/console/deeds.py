"""What plans can do: one line for each action says who may, what it is called, how it is undone."""

from msgspec import Struct

from courier.console import operates
from courier.console.plans import Action, Plan
from courier.console.queue import may
from courier.core.errors import Forbidden
from courier.core.types import Key, Scope
from courier.words import clock, count, listing

# From this many messages on, their number has to be typed.
TYPED_FROM = 100
_PUBLISH: tuple[Scope, ...] = ("messages:publish",)
_PUSH: tuple[Scope, ...] = ("listeners:write",)
# The lake shows the messages of every queue.
_LAKE: tuple[Scope, ...] = ("journal", "messages:read", "messages:publish")
_NO_UNDO = "This cannot be undone."
_PUSHES = "Nothing to undo: disable the listener to stop its pushes."
_AN_UNDO = "An undo is not undone; make another plan."


class Deed(Struct, frozen=True):
    """What an action is. `scopes` are needed on all its queues, beside that of the route.

    `limited`: keys that reach all its queues may; else only those without limits. `operator`: only
    the operator may. `whole`: it changes a queue, listener, key or tenant, not messages alone.
    `typed`: its name is typed to confirm it, or the number of its messages. `undo` is the action
    that undoes it, and `undo_words` its button; `never` is why there is none. Titles have {many},
    counted in `noun`s, {names} of queues and {target}.
    """

    title: str
    scopes: tuple[Scope, ...] = ()
    limited: bool = True
    operator: bool = False
    whole: bool = False
    typed: str = ""
    undo: Action | None = None
    undo_words: str = "Put back {many}"
    never: str = ""
    noun: tuple[str, str] = ("message", "messages")


_DELETE = Deed("Delete {many} of {names}", typed="count", undo="put_back")
_LEASED_SINCE = "Take back those that nobody has leased since"
# Every action needs a line here; one without is for nobody.
DEEDS: dict[Action, Deed] = {
    "delete": _DELETE,
    "purge": _DELETE,
    "redrive": Deed(
        "Redrive {many} of {names}", undo="take_back", undo_words=_LEASED_SINCE,
        noun=("dead letter", "dead letters"),
    ),
    "replay": Deed(
        "Replay {many} into {names}", _LAKE, limited=False, undo="take_back",
        undo_words=_LEASED_SINCE,
    ),
    "retry_pushes": Deed(
        "Retry {many} of {names} to {target}", _PUSH, never=_PUSHES, noun=("push", "pushes"),
    ),
    "backfill": Deed("Push {many} of {names} to {target}", _PUSH, whole=True, never=_PUSHES),
    "delete_queue": Deed(
        "Delete queue {target} and its {many}", whole=True, typed="name", undo="create_again",
        undo_words="Create {target} again and put back {many}",
    ),
    "put_back": Deed("Put back {many} on {names}", _PUBLISH, never=_AN_UNDO),
    "take_back": Deed("Take back {many} from {names}", _PUBLISH, never=_AN_UNDO),
    # A new queue, and bindings and dead letters of others.
    "create_again": Deed(
        "Create queue {target} again and put back {many}", _PUBLISH, limited=False, whole=True,
        never=_AN_UNDO,
    ),
    "delete_key": Deed(
        "Delete key {target}", limited=False, operator=True, whole=True, typed="name",
        never=_NO_UNDO,
    ),
    "delete_tenant": Deed(
        "Delete tenant {target} and all it owns", limited=False, operator=True, whole=True,
        typed="name", never=_NO_UNDO,
    ),
}  # fmt: skip


# --- who may look at a plan, and who may make, run and undo it: by every queue that it touches ---


def targets(plan: Plan) -> list[str]:
    """Every queue (id) that a limited key has to reach for it; "", which none does, if none may."""
    deed = DEEDS.get(plan.action)
    if deed is None or not deed.limited or not plan.queues or plan.touched is None:
        return [""]
    return [*(queue for queue, _ in plan.queues), *plan.touched]


def of_operator(plan: Plan) -> bool:
    """Whether nobody else may see it."""
    deed = DEEDS.get(plan.action)
    return deed is None or deed.operator


def check(key: Key | None, plan: Plan) -> None:
    """Raises Forbidden unless the key has the scopes of the action wherever it acts."""
    deed = DEEDS.get(plan.action)
    if deed is None or (deed.operator and (key is None or not operates(key))):
        raise Forbidden("admin")
    for scope in deed.scopes:
        if not all(may(key, scope, queue) for queue in targets(plan)):
            raise Forbidden(scope)


def readable(key: Key | None, plan: Plan) -> bool:
    """Whether the key may see messages that it chose."""
    return all(may(key, "messages:read", queue) for queue in targets(plan))


# --- what it is called, how it is confirmed and undone ---


def _spelled(plan: Plan, words: str, many: int) -> str:
    names = listing([name for _, name in plan.queues]) or "no queue"
    counted = count(many, *DEEDS[plan.action].noun)
    return words.format(many=counted, names=names, target=plan.target_name)


def title(plan: Plan) -> str:
    return _spelled(plan, DEEDS[plan.action].title, plan.count)


def selected(plan: Plan, now_ms: int) -> str:
    """Which messages, in words."""
    selection = plan.selection
    said = []
    if selection.seqs:
        said.append("those that were selected")
    if selection.state:
        said.append(selection.state)
    if selection.origin:
        said.append("dead letters of one queue")
    if selection.since_ms:
        said.append(f"published from {clock(selection.since_ms, now_ms)}")
    if selection.until_ms < 1 << 62:
        said.append(f"published before {clock(selection.until_ms, now_ms)}")
    if selection.path:
        said.append(f"with {selection.path} = {selection.text}")
    elif selection.text:
        said.append(f"with '{selection.text}' in body, headers or id")
    if selection.sql:
        return "rows of a question to the lake"
    if plan.undo_of or not plan.queues:
        return ""
    return ", ".join(said) if said else "every message that was there"


def needed_words(plan: Plan) -> str:
    """What has to be typed before it runs, "" for nothing."""
    typed = DEEDS[plan.action].typed
    if typed == "name":
        return plan.target_name
    return str(plan.count) if typed == "count" and plan.count >= TYPED_FROM else ""


def undo_words(plan: Plan) -> str:
    words = DEEDS[plan.action].undo_words
    return words.format(many=count(plan.done, "message"), target=plan.target_name)


def never_undone(plan: Plan) -> str:
    """Why it cannot be undone at all, "" if it can once it was done."""
    never = DEEDS[plan.action].never
    if never:
        return never
    if not plan.kept:
        return "This cannot be undone: its messages take more room than plans have."
    return "It was undone." if plan.undone_by else ""


def undoable(plan: Plan) -> bool:
    over = plan.state == "done" or (plan.state == "stopped" and not plan.problem)
    deleted = plan.action == "delete_queue" and plan.state == "done"
    return over and not never_undone(plan) and (plan.done > 0 or deleted)


def queue_effects(plan: Plan) -> list[str]:
    """What goes with a queue, or what of it comes back."""
    before = plan.before
    assert before is not None
    said = []
    if before.buriers:
        names = listing([name for _, name, _ in before.buriers])
        if plan.action == "delete_queue":
            said.append(f"{names} {'buries' if len(before.buriers) == 1 else 'bury'} into it, and "
                        "will attempt messages until they expire.")  # fmt: skip
    if before.bindings:
        said.append(f"It is bound to {listing([name for name, _ in before.bindings])}.")
    lost = [f"listener {name}" for name in before.listeners]
    lost += [f"subscription {name}" for name in before.subscriptions]
    if lost:
        said.append(f"Not made again by an undo: {listing(lost)}.")
    return said
