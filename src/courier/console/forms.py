"""What the forms of the console send. Every field is text; the pages judge it, and say where."""

from msgspec import Struct


class Nothing(Struct):
    """A button alone."""


class Switch(Struct):
    """A button that leads back to `view`: the path and query of the page that it is on."""

    view: str = ""


class SignIn(Struct):
    """A key, or a user and password; `then` is the page to go to."""

    key: str = ""
    user: str = ""
    password: str = ""
    then: str = ""


class NewQueue(Struct):
    """`like` is the id of a queue that was deleted, whose settings it gets."""

    name: str = ""
    like: str = ""


class Publish(Struct):
    body: str = ""
    kind: str = "json"
    headers: str = ""
    delay: str = ""
    group: str = ""


class Settings(Struct):
    """Durations as 30s or 4d. `modified` is when the queue that was shown had last changed,
    `view` as of a Switch.
    """

    lease: str = ""
    attempts: str = ""
    retry: str = ""
    dead_letter: str = ""
    delay: str = ""
    retention: str = ""
    view: str = ""
    modified: int = 0
    confirm: bool = False


class NewKey(Struct):
    """Scopes and the names of queues, with commas between; a `connected_app` opens Anypoint MQ."""

    name: str = ""
    kind: str = "token"
    scopes: str = ""
    targets: str = ""


class NewPlan(Struct):
    """What to do, to what: ids of queues or sequences of messages, with commas between.

    `which` "all": every message that fits `since`, `until`, `q`, `path`, `state` and `origin` (the
    queue whose dead letters they are), not those `selected`. `rate`: messages a second of a replay.
    `view`: as of a Switch.
    """

    action: str = ""
    queue: str = ""
    selected: str = ""
    which: str = ""
    since: str = ""
    until: str = ""
    q: str = ""
    path: str = ""
    sql: str = ""
    target: str = ""
    rate: str = ""
    state: str = ""
    origin: str = ""
    view: str = ""


class Confirmed(Struct):
    """What had to be typed: how many messages, or a name."""

    confirm: str = ""


class Question(Struct):
    """SQL, and as what to download its answer: csv, json or not at all."""

    sql: str = ""
    form: str = ""


class NewListener(Struct):
    name: str = ""
    url: str = ""


class ChangeForm(Struct):
    """What to do to a listener or an exchange. `confirm` is its name, where it is deleted.

    Of an exchange: to the binding of `queue`, whose rule is that `header` passes `test` with
    `value`; without a header everything is taken. `view`: as of a Switch.
    """

    action: str = ""
    view: str = ""
    confirm: str = ""
    queue: str = ""
    header: str = ""
    test: str = ""
    value: str = ""


class ConnectionForm(Struct):
    """A worker, exchange, event subscription or domain to make or, by name or id, to remove."""

    action: str = ""
    name: str = ""
    url: str = ""
    queue: str = ""
    source: str = ""
    events: str = ""
    hostname: str = ""
    port: str = ""
    encrypted: bool = False
    target: str = ""
