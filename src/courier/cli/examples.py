"""Lines to paste, shown at the end of the help of each command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "courier serve": ("courier serve", "courier serve --port 9000 --data /var/lib/courier"),
    "courier init": ("courier init --store postgresql://courier@db.example/courier",),
    "courier store copy": (
        "courier store copy --from sqlite:courier-data "
        "--to postgresql://courier@db.example/courier --dry-run",
        "courier store copy --from postgresql://courier@db.example/courier --to sqlite:one-server",
    ),
    "courier store restored": ("courier store restored postgresql://courier@db.example/courier",),
    "courier config": ("courier config", "courier config --port 9000"),
    "courier up": ("courier up", "courier up --port 9000"),
    "courier console": ("courier console",),
    "courier credentials": (
        "courier credentials --tenant acme --json",
        'eval "$(courier credentials --env)"',
    ),
    "courier tenant list": ("courier tenant list",),
    "courier tenant create": (
        "courier tenant create acme",
        "courier tenant create acme-test --organization-of acme",
    ),
    "courier tenant delete": (
        "courier tenant delete acme --dry-run",
        "courier tenant delete acme --yes",
    ),
    "courier key list": ("courier key list", "courier key list --tenant operator"),
    "courier key create": (
        "courier key create shop --scope write --queue orders",
        "courier key create prometheus --tenant operator --scope metrics",
    ),
    "courier key rotate": ("courier key rotate shop --overlap 2h",),
    "courier key delete": ("courier key delete c0ffee00c0ffee00c0ffee00c0ffee00",),
    "courier queue list": (
        "courier queue list",
        "courier queue list --sort waiting --watch",
        "courier queue list --json",
    ),
    "courier queue create": (
        "courier queue create orders",
        "courier queue create orders --dead-letter orders-failed --max-retries 3",
    ),
    "courier queue show": ("courier queue show orders",),
    "courier queue update": (
        "courier queue update orders --retention 7d --lease 2m",
        "courier queue update orders --rename sales",
    ),
    "courier queue delete": (
        "courier queue delete orders --dry-run",
        "courier queue delete orders --yes",
    ),
    "courier queue purge": (
        "courier queue purge orders --dry-run",
        "courier queue purge orders --since 1h --state waiting",
    ),
    "courier queue pause": ("courier queue pause orders",),
    "courier queue resume": ("courier queue resume orders",),
    "courier queue freeze": ("courier queue freeze orders",),
    "courier queue unfreeze": ("courier queue unfreeze orders",),
    "courier top": ("courier top", "courier top --sort oldest --watch 5s"),
    "courier message show": (
        "courier message show c0ffee00c0ffee00c0ffee00c0ffee00",
        "courier message show order-3 --queue orders",
    ),
    "courier publish": (
        "courier publish orders 'hello'",
        """courier publish orders '{"order": 1}' --type json --delay 5m""",
        "courier publish orders --lines < orders.txt",
    ),
    "courier pull": ("courier pull orders --ack", "courier pull orders --count 10 --lease 5m"),
    "courier ack": ("courier ack orders LEASE", "courier ack orders LEASE --retry --delay 30s"),
    "courier peek": ("courier peek orders --count 10",),
    "courier redrive": ("courier redrive orders-failed",),
    "courier listener list": ("courier listener list orders",),
    "courier listener add": (
        "courier listener add orders billing https://billing.example/hook",
        "courier listener add orders billing https://billing.example/hook --per-second 5",
    ),
    "courier listener show": ("courier listener show orders billing --watch",),
    "courier listener test": ("courier listener test orders billing",),
    "courier listener retry-failed": ("courier listener retry-failed orders billing",),
    "courier listener enable": ("courier listener enable orders billing",),
    "courier listener disable": ("courier listener disable orders billing",),
    "courier listener backfill": ("courier listener backfill orders billing",),
    "courier worker add": ("courier worker add billing https://workers.example/billing",),
    "courier worker list": ("courier worker list",),
    "courier worker secret": ("courier worker secret billing",),
    "courier worker remove": ("courier worker remove billing",),
    "courier plan list": ("courier plan list",),
    "courier plan show": ("courier plan show ID",),
    "courier plan run": ("courier plan run ID", "courier plan run ID --yes"),
    "courier plan undo": ("courier plan undo ID",),
    "courier event send": (
        """courier event send r2 bucket.created --payload '{"name": "images"}'""",
    ),
    "courier journal": (
        "courier journal",
        "courier journal --follow --queue orders --kind buried",
        "courier journal --since 10m --json",
    ),
    "courier pipeline run": ("courier pipeline run --once",),
    "courier pipeline status": ("courier pipeline status",),
    "courier pipeline rebuild": ("courier pipeline rebuild",),
    "courier pipeline forget": ("courier pipeline forget nightly",),
    "courier pipeline list": ("courier pipeline list",),
    "courier lake tables": ("courier lake tables",),
    "courier lake query": (
        """courier lake query "SELECT queue, count(*) FROM messages GROUP BY ALL" """.strip(),
    ),
    "courier lake views": ("courier lake views --out /srv/reports/lake.duckdb",),
    "courier lake drop": ("courier lake drop --before 400d --dry-run",),
    "courier lake catalog": ("courier lake catalog --out /srv/reports/catalog.db",),
    "courier lake erase": (
        """courier lake erase --queue orders --where "data->>'customer' = 'c42'" --dry-run""",
        "courier lake erase --queue orders --before 2025-11-01",
    ),
    "courier lake erasures": ("courier lake erasures",),
    "courier lake compact": ("courier lake compact events",),
    "courier lake vacuum": ("courier lake vacuum",),
    "courier lake backfill-listener": (
        "courier lake backfill-listener --queue orders --listener billing",
    ),
    "courier replay": ("courier replay --queue orders --dry-run",),
    "courier report": ("courier report",),
    "courier completion": (
        'eval "$(courier completion bash)"',
        "courier completion fish > ~/.config/fish/completions/courier.fish",
    ),
}


def shown(prog: str) -> str | None:
    """The examples of a command, as the end of its help; None for a command of ours without."""
    lines = EXAMPLES.get(prog)
    if lines is None:
        return None
    return "\n  ".join(["examples:" if len(lines) > 1 else "example:", *lines])
