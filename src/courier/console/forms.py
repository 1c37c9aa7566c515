"""What the forms of the console send. Every field is text; the pages judge it, and say where."""

from msgspec import Struct


class Nothing(Struct):
    """A button alone."""


class SignIn(Struct):
    """A key, or a user and password; `then` is the page to go to."""

    key: str = ""
    user: str = ""
    password: str = ""
    then: str = ""


class NewQueue(Struct):
    name: str = ""


class Publish(Struct):
    body: str = ""
    kind: str = "json"
    headers: str = ""
    delay: str = ""
    group: str = ""


class Settings(Struct):
    """Durations as 30s or 4d. `modified` is when the queue that was shown had last changed."""

    lease: str = ""
    attempts: str = ""
    retry: str = ""
    dead_letter: str = ""
    delay: str = ""
    retention: str = ""
    modified: int = 0
    confirm: bool = False


class NewKey(Struct):
    """Scopes and the names of queues, with commas between."""

    name: str = ""
    scopes: str = ""
    targets: str = ""


class Typed(Struct):
    """The name of what is to go."""

    name: str = ""
