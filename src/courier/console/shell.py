"""The line that does in a shell what a plan does."""

import shlex

from courier.console.plans import Plan
from courier.console.words import iso


def plan_line(plan: Plan, *, tenant: str, first_tenant: str) -> str:
    """Its own words where there are some for it; every plan can be run by its id."""
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
    if tenant != first_tenant:
        words += ["--tenant", tenant]
    return shlex.join(words)
