"""Lines that do or show in a shell, or in the lake, what a page does."""

import shlex
from urllib.parse import quote

from courier.console.plans import Plan
from courier.words import iso

_WITH_CURL = "curl, with the token of any key that sees the queue"


def plan_line(plan: Plan, tenant: str) -> str:
    """Its own words where there are some for it; every plan can be run by its id.

    Here and below, `tenant` is "" where the command line need not name it.
    """
    selection = plan.selection
    named = bool(selection.seqs or selection.origin)
    if plan.action not in ("delete", "purge") or named or len(plan.queues) != 1:
        return f"courier plan run {plan.id}"
    words = ["courier", "queue", "purge", plan.queues[0][1]]
    if selection.since_ms:
        words += ["--since", iso(selection.since_ms)]
    if selection.until_ms < 1 << 62:
        words += ["--until", iso(selection.until_ms)]
    if selection.state:
        words += ["--state", selection.state]
    if selection.text:
        words += ["--search", selection.text]
    if selection.path:
        words += ["--path", selection.path]
    return shlex.join([*words, *_of(tenant)])


def queue_lines(url: str, id: str, name: str, tenant: str) -> list[tuple[str, str]]:
    """What the page of a queue shows, elsewhere: words and the line."""
    shown = shlex.join(["courier", "queue", "show", name, *_of(tenant)])
    return [
        ("The CLI", shown),
        (
            _WITH_CURL,
            _curl(f"{url}/console/queues/{id}"),
        ),
        ("SQL", f"SELECT * FROM queue_minutes WHERE queue_id = '{id}' ORDER BY minute"),
    ]


def replay_sql(queue: str, since_ms: int, until_ms: int) -> str:
    """A question whose rows can be replayed: what was published on the queue in that time."""
    return (
        "SELECT queue_id, seq, published_at, outcome, attempts, data\nFROM messages\n"
        f"WHERE queue_id = '{queue}'\n"
        f"  AND published_at >= TIMESTAMPTZ '{iso(since_ms)}'\n"
        f"  AND published_at < TIMESTAMPTZ '{iso(until_ms)}'\n"
        "ORDER BY seq"
    )


def message_lines(url: str, id: str, queue: str, name: str, tenant: str) -> list[tuple[str, str]]:
    shown = shlex.join(["courier", "message", "show", id, "--queue", name, *_of(tenant)])
    path = f"{url}/console/messages/{quote(id, safe='')}?queue={queue}"
    literal = id.replace("'", "''")
    return [
        ("The CLI", shown),
        (_WITH_CURL, _curl(path)),
        (
            "SQL",
            f"SELECT * FROM events WHERE queue_id = '{queue}' AND message_id = '{literal}' "
            'ORDER BY "offset"',
        ),
    ]


def _of(tenant: str) -> list[str]:
    return ["--tenant", tenant] if tenant else []


def _curl(url: str) -> str:
    return (
        f"curl {shlex.quote(url)} \\\n"
        "  -H 'Accept: application/json' -H \"Authorization: Bearer $TOKEN\""
    )
