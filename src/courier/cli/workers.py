"""`worker`: where the scripts of worker consumers run."""

from courier.cli.credentials import read_secret
from courier.cli.parser import Commands
from courier.cli.resources import Verb, argument
from courier.cli.resources import add as add_resource

_ROUTE = "/tenants/{tenant}/workers"
_NAME = argument("name", metavar="NAME")
SECRET = argument(
    "--secret",
    metavar="SECRET",
    type=read_secret,
    member="secret",
    help="sign with this secret, whsec_..., or @FILE to read it from a file",
)
_VERBS = {
    "add": Verb(
        help="set the URL of a worker, and print its signing secret",
        route=f"PUT {_ROUTE}/{{name}}", member="secret",
        takes=[_NAME, argument("worker_url", metavar="URL", member="url"), SECRET]),
    "list": Verb(
        help="list the workers of a tenant", route=f"GET {_ROUTE}", member="workers",
        columns=("name", "url", "source", "created")),
    "secret": Verb(
        help="print the secret that signs calls to a worker",
        route=f"GET {_ROUTE}/{{name}}/secret", takes=[_NAME], member="secret", json=False),
    "remove": Verb(
        help="remove the URL of a worker", route=f"DELETE {_ROUTE}/{{name}}", takes=[_NAME],
        said="removed worker '{name}'"),
}  # fmt: skip


def add(commands: Commands) -> None:
    add_resource(commands, "worker", "set the URLs that worker consumers call", _VERBS)
