"""Which part may use which, read from the source itself."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from courier.core import store
from courier.store.engine import disk

ROOT = Path(__file__).parents[2] / "src"
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(ROOT.rglob("*.py"))
}

# Part -> the parts of Courier it may import. The longest matching prefix of a module counts.
MAY_IMPORT = {
    "courier.config": ("courier.masking",),
    "courier.masking": (),
    "courier.clock": (),
    "courier.drawing": (),
    "courier.event_columns": (),
    "courier.files": (),
    "courier.ids": (),
    "courier.core": ("courier.clock", "courier.event_columns", "courier.ids", "courier.core"),
    "courier.store": (
        "courier",
        "courier.clock",
        "courier.files",
        "courier.ids",
        "courier.core",
        "courier.store",
    ),
    "courier.delivery": (
        "courier",
        "courier.clock",
        "courier.ids",
        "courier.core",
        "courier.delivery",
        "courier.masking",
    ),
    "courier.dialects": (
        "courier",
        "courier.clock",
        "courier.ids",
        "courier.core",
        "courier.credentials",
        "courier.delivery",
        "courier.long_texts",
        "courier.refusals",
        "courier.web",
    ),
    "courier.console": (
        "courier",
        "courier.clock",
        "courier.ids",
        "courier.core",
        "courier.console",
        "courier.files",
        "courier.dialects.forms",
        "courier.dialects.json",
        "courier.drawing",
        "courier.refusals",
        "courier.web",
        "courier.words",
    ),
    # It runs on executors too, where nothing of the server is.
    "courier.lake": (
        "courier",
        "courier.clock",
        "courier.drawing",
        "courier.event_columns",
        "courier.files",
        "courier.ids",
        "courier.lake",
        "courier.requester",
    ),
    "courier.cli": (
        "courier",
        "courier.clock",
        "courier.config",
        "courier.files",
        "courier.ids",
        "courier.masking",
        "courier.requester",
        "courier.words",
        "courier.cli",
        "courier.lake",
    ),
    # It works on files and databases that no server is using.
    "courier.cli.store_copy": ("courier.config", "courier.cli", "courier.core", "courier.store"),
    "courier.cli.serve": ("courier", "courier.config", "courier.cli", "courier.app"),
}
# A dialect is a folder; what lies beside the folders is for all of them.
SHARED_BY_DIALECTS = {
    name
    for name, file in MODULES.items()
    if file.parent == ROOT / "courier" / "dialects" and file.name != "__init__.py"
}
# Name -> the only modules that may use it.
ONLY_IN = {
    # Spark finds Java and its Python there, and a bucket is found by AWS' own variables.
    "os.environ": (
        "courier.config",
        "courier.lake.java",
        "courier.lake.session",
        "courier.lake.start.sitecustomize",
        "courier.lake.storage",
    ),
    "os.environb": ("courier.config",),
    "os.getenv": ("courier.config",),
    "time.time": ("courier.clock",),
    "time.time_ns": ("courier.clock",),
    "datetime.datetime.now": ("courier.clock",),
    "datetime.datetime.utcnow": ("courier.clock",),
    "datetime.datetime.today": ("courier.clock",),
    "datetime.date.today": ("courier.clock",),
    "os.urandom": ("courier.ids",),
    "random": ("courier.ids",),
    "secrets": ("courier.ids",),
    "uuid": ("courier.ids",),
    "apsw": ("courier.store",),
    "pyspark": ("courier.lake",),
    "duckdb": ("courier.lake",),
}


def names_used(source: str, module: str, *, package: bool = False) -> Iterator[str]:
    """Every name from outside that the source imports or reaches, in full: `os.environ`."""
    tree = ast.parse(source)
    origin: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                name = alias.asname or alias.name.partition(".")[0]
                origin[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: None if package and node.level == 1 else -node.level]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                yield f"{base}.{alias.name}"
                origin[alias.asname or alias.name] = f"{base}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = [node.attr]
            value = node.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in origin:
                yield ".".join([origin[value.id], *reversed(parts)])


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


@cache
def used_by(module: str) -> frozenset[str]:
    file = MODULES[module]
    return frozenset(names_used(file.read_text(), module, package=file.name == "__init__.py"))


def imported_modules(module: str) -> set[str]:
    """The modules of Courier that a module imports."""
    found = set()
    for name in used_by(module):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        if name:
            found.add(name)
    return found


def allowed(module: str, imported: str, parts: tuple[str, ...]) -> bool:
    if within(module, "courier.dialects"):
        own_folder = ".".join(module.split(".")[:3])
        parts = (*parts, own_folder, *SHARED_BY_DIALECTS)
    return any(imported == part if part == "courier" else within(imported, part) for part in parts)


def test_a_module_imports_only_the_parts_below_it() -> None:
    wrong = []
    for module in MODULES:
        if rules := [part for part in MAY_IMPORT if within(module, part)]:
            parts = MAY_IMPORT[max(rules, key=len)]
            found = imported_modules(module)
            wrong += [(module, name) for name in found if not allowed(module, name, parts)]
    assert not wrong


def test_the_core_needs_nothing_but_the_standard_library_and_two_packages() -> None:
    core = [module for module in MODULES if within(module, "courier.core")]
    roots = {name.partition(".")[0] for module in core for name in used_by(module)}
    assert roots <= sys.stdlib_module_names | {"msgspec", "re2", "courier"}


def test_environment_time_randomness_and_database_are_reached_in_one_place() -> None:
    wrong = [
        (module, name)
        for module in MODULES
        for name in used_by(module)
        for reserved, owners in ONLY_IN.items()
        if within(name, reserved) and not any(within(module, owner) for owner in owners)
    ]
    assert not wrong


def test_every_rule_speaks_of_modules_that_exist() -> None:
    parts = {*MAY_IMPORT, *(part for parts in MAY_IMPORT.values() for part in parts)}
    assert {part for part in parts if part not in MODULES} == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import os\nos.environ['A']", "os.environ"),
        ("import os as o\no.environ['A']", "os.environ"),
        ("from os import environ as e", "os.environ"),
        ("from time import time", "time.time"),
        ("from datetime import datetime as d\nd.now()", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("def f():\n    import apsw", "apsw"),
        ("import courier.store.embedded", "courier.store.embedded"),
        ("from courier.store import embedded", "courier.store.embedded"),
        ("from ..store import embedded", "courier.store.embedded"),
        ("from .types import Queue", "courier.core.types.Queue"),
    ],
)
def test_a_use_is_seen_however_it_is_written(source: str, name: str) -> None:
    assert name in set(names_used(source, "courier.core.broker"))


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    used = set(names_used("from .types import Queue", "courier.core", package=True))
    assert used == {"courier.core.types.Queue"}


# What the core asks of a store must fit in one head.
STORE_MEMBERS_MAX = 24
PARAMETERS_MAX = 6


def test_the_store_is_small_enough_to_hold_in_the_head() -> None:
    members = {name for name in dir(store.Store) if not name.startswith("_")}
    members |= store.Store.__annotations__.keys()
    assert len(members) <= STORE_MEMBERS_MAX
    seams = [each for each in vars(store).values() if getattr(each, "_is_protocol", False)]
    for seam in seams:
        for name, verb in inspect.getmembers(seam, inspect.isfunction):
            asked = inspect.signature(verb).parameters.keys() - {"self", "actor", "now_ms"}
            assert len(asked) <= PARAMETERS_MAX, f"{seam.__name__}.{name}"


# So must what the engine asks of a disk: a dozen methods, and `close`.
DISK_METHODS_MAX = 13


def test_a_disk_is_small_enough_to_hold_in_the_head() -> None:
    methods = [name for name in vars(disk.Disk) if not name.startswith("_")]
    assert len(methods) <= DISK_METHODS_MAX


# What of the store's protocols a part may name. The types see to it that it calls no other verb.
OF_THE_STORE = {
    "courier.dialects": ("StoreReads", "JournalReads", "MessageReads", "PastReads", "PushReads"),
    "courier.ops": ("StoreReads", "JournalReads", "MessageReads", "PastReads", "PushReads"),
    "courier.console": ("StoreReads", "JournalReads", "MessageReads", "PastReads", "PushReads"),
    "courier.delivery": ("StoreReads", "DeliveryStore"),
}


@pytest.mark.parametrize("part", OF_THE_STORE)
def test_what_the_store_holds_is_changed_by_verbs_of_the_core_alone(part: str) -> None:
    used = {name for module in MODULES if within(module, part) for name in used_by(module)}
    named = {name for name in used if within(name, "courier.core.store")}
    assert used, "nothing was looked at"
    assert named <= {f"courier.core.store.{name}" for name in OF_THE_STORE[part]}


def test_what_is_read_of_the_store_cannot_change_it() -> None:
    def verbs(seam: type) -> set[str]:
        return {name for name in dir(seam) if not name.startswith("_")}

    reading = {
        store.MessageReads: {"ready", "browse", "states", "search", "find", "tail"},
        store.PushReads: {"of_message", "stats", "missed"},
        store.PastReads: {"tallies", "levels"},
        store.JournalReads: {"head", "read", "offset_at", "backlogs"},
    }
    for seam, known in reading.items():
        assert verbs(seam) == known
    nouns = {"records", "messages", "pushes", "journal", "past", "health"}
    assert verbs(store.StoreReads) == {*nouns, "stats"}
