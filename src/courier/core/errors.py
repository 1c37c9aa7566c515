"""What can go wrong, as values. How a dialect says it is the dialect's business.

BrokerError                     never raised itself
  Rejected                      the caller can fix it
    InvalidRequest              Unauthenticated   Forbidden
    NotFound   InUse            OverLimit
    Conflict   (RowsChanged)
    SchemaBroken
    Paused     Frozen           NotPullable
    ClaimLost  RateLimited
  Unavailable                   try again later
    StoreUnavailable            ShuttingDown      OutOfSpace
    (StoreDamaged)
    OutcomeUnknown              never rendered: the connection is closed without an answer
"""


class BrokerError(Exception):
    """Base of everything the broker raises on purpose.

    `signin`: why it counts as a failed sign-in; "" if it does not.
    """

    signin = ""


class Rejected(BrokerError):
    """The caller can fix it. Raised before anything was written."""


class InvalidRequest(Rejected):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


class Unauthenticated(Rejected):
    """`why` is `missing` (no credential), `malformed` (not of the right form) or `unknown`.

    What is wrong with an unknown one, and with which key, is for the journal and not for the
    caller.
    """

    def __init__(self, why: str, *, signin: str = "", tenant: str = "", key: str = "") -> None:
        super().__init__(f"credential is {why}")
        self.why = why
        self.signin = signin or ("" if why == "missing" else why)
        self.tenant = tenant
        self.key = key


class Forbidden(Rejected):
    """The key lacks `scope`, or has it `limited` to other targets.

    It does not say which target, so that nobody learns from it what exists.
    """

    signin = "scope"

    def __init__(self, scope: str, *, limited: bool = False) -> None:
        why = f"key's scope {scope} does not reach this" if limited else f"key lacks scope {scope}"
        super().__init__(why)
        self.scope = scope
        self.limited = limited


class NotFound(Rejected):
    def __init__(self, kind: str, ref: str) -> None:
        super().__init__(f"{kind} '{ref}' does not exist")
        self.kind = kind
        self.ref = ref


class Conflict(Rejected):
    """Another `kind` already holds `ref`."""

    def __init__(self, kind: str, ref: str) -> None:
        super().__init__(f"{kind} '{ref}' already exists")
        self.kind = kind
        self.ref = ref


class RowsChanged(Conflict):
    """Under the key `ref` are `count` rows, and they are not those that were to be published."""

    def __init__(self, key: str, count: int) -> None:
        super().__init__("rows", key)
        self.count = count

    def __str__(self) -> str:
        return (
            f"the rows published under '{self.ref}' before were others: there are {self.count}, "
            "and those sent now differ from them in content, order or number"
        )


class InUse(Rejected):
    """`ref` cannot go while `by` refers to it."""

    def __init__(self, kind: str, ref: str, by: str) -> None:
        super().__init__(f"{kind} '{ref}' is in use by {by}")
        self.kind = kind
        self.ref = ref
        self.by = by


class OverLimit(Rejected):
    def __init__(self, what: str, *, limit: int, actual: int) -> None:
        super().__init__(f"{what} is {actual}, the limit is {limit}")
        self.what = what
        self.limit = limit
        self.actual = actual


class SchemaBroken(Rejected):
    """A message is not what its queue's schema asks for; `problems` are (JSON pointer, what).

    `place` is that of its draft among those that were to be published.
    """

    def __init__(self, problems: "list[tuple[str, str]]", place: int = 0) -> None:
        first, more = problems[0], len(problems) - 1
        rest = f" (and {more} more)" if more else ""
        super().__init__(f"the queue's schema is broken: {first[0] or '/'} {first[1]}{rest}")
        self.problems = problems
        self.place = place


class Paused(Rejected):
    def __init__(self, queue: str) -> None:
        super().__init__(f"delivery of queue '{queue}' is paused")
        self.queue = queue


class Frozen(Rejected):
    def __init__(self, queue: str) -> None:
        super().__init__(f"queue '{queue}' is frozen by the operator")
        self.queue = queue


class NotPullable(Rejected):
    def __init__(self, queue: str) -> None:
        super().__init__(f"queue '{queue}' has no pull consumer")
        self.queue = queue


class ClaimLost(Rejected):
    def __init__(self, name: str) -> None:
        super().__init__(f"claim '{name}' is lost: not all of its messages are leased by it")
        self.name = name


class RateLimited(Rejected):
    def __init__(self, what: str, *, retry_after_ms: int) -> None:
        super().__init__(f"{what} is over its rate; retry after {retry_after_ms} ms")
        self.what = what
        self.retry_after_ms = retry_after_ms


class Unavailable(BrokerError):
    """Try again later; except for OutcomeUnknown, nothing of the request was stored."""


class StoreUnavailable(Unavailable):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the store is not available: {reason}")


class StoreDamaged(StoreUnavailable):
    """What is stored there is not what was written; `what` is a block, a packet, a value."""

    def __init__(self, what: str, key: int | None = None) -> None:
        self.place = what if key is None else f"{what} {key}"
        super().__init__(f"{self.place} is damaged on disk")


class ShuttingDown(Unavailable):
    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class AnswersFull(Unavailable):
    """Too many bytes of messages are on their way to clients already."""

    def __init__(self) -> None:
        super().__init__("messages on their way to clients are at their limit")


class OutOfSpace(Unavailable):
    """The disk is below its low-water mark: what would grow the store is refused for now."""

    RETRY_AFTER_S = 30

    def __init__(self, *, free: int, limit: int) -> None:
        super().__init__(
            f"the disk has {free} bytes left for messages, and {limit} must stay free; "
            "pull, acknowledge or purge messages to make room"
        )
        self.free = free
        self.limit = limit


class OutcomeUnknown(Unavailable):
    """The disk did not say whether the request was stored, and both answers could be wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the disk did not say whether this was stored: {reason}")
