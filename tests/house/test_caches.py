"""Everything that grows while the server runs has a bound, and all caches together stay small."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from courier import admissions, heads, ids, web
from courier.console import consumers, queues, recent
from courier.core import keys, limits, patterns, sessions
from courier.delivery import lookups, transport
from courier.dialects import json
from courier.dialects.anypoint import names, wire
from courier.dialects.discue import lockout, messages

ROOT = Path(__file__).parents[2] / "src" / "courier"
# The store holds what the disk holds; these two are no part of the server.
ELSEWHERE = ("store", "lake", "cli")
ALL_BYTES_MAX = 128 << 20
_ID = 200  # bytes that a text of 32 characters takes up, with its place in a dict


class Bound(NamedTuple):
    entries: int
    bytes_each: int


# What is remembered to be quicker, each with how much of it and how long an entry may be.
CACHES = {
    "web.py:_known_query": Bound(
        # One field for every two bytes, at worst.
        web.QUERIES_REMEMBERED_MAX,
        web.QUERY_REMEMBERED_BYTES_MAX // 2 * 300,
    ),
    "web.py:App._found": Bound(web.PATHS_REMEMBERED_MAX, 3 * web.PATH_REMEMBERED_BYTES_MAX + 1_500),
    "admissions.py:Admissions._known": Bound(
        admissions.ADMISSIONS_MAX,
        admissions.PLACE_CHARACTERS_MAX + admissions.PROOF_CHARACTERS_MAX + 1_500,
    ),
    # Twice its text: as it was spelled, and as parsed.
    "heads.py:Heads._known": Bound(
        heads.HEADS_REMEMBERED_MAX,
        2 * heads.HEAD_REMEMBERED_BYTES_MAX + 150 * heads.FIELDS_REMEMBERED_MAX + 500,
    ),
    "heads.py:usual_head": Bound(heads.USUAL_REMEMBERED_MAX, _ID),
    "ids.py:mark": Bound(ids.mark.cache_info().maxsize or 0, _ID),
    "ids.py:Tokens._begun": Bound(2 * 1_000, 1_000),
    "core/patterns.py:compiled": Bound(
        patterns.PATTERNS_REMEMBERED_MAX,
        patterns.MEMORY_BYTES_MAX + 4 * patterns.PATTERN_CHARACTERS_MAX,
    ),
    # Secrets are verified first, so they are as long as we make them.
    "core/keys.py:Keyring._verified": Bound(4 * keys.Keyring.REMEMBERED_MAX, _ID),
    "core/sessions.py:Sessions._verified": Bound(sessions.REMEMBERED_MAX, _ID),
    "core/limits.py:Rate._left": Bound(limits.Rate.NAMES_MAX, 2 * _ID),
    # Ten times of failures at most, in a list.
    "dialects/discue/lockout.py:Lockout._failures": Bound(lockout.ADDRESSES_MAX, 700),
    "dialects/discue/lockout.py:Lockout._until_ms": Bound(lockout.ADDRESSES_MAX, _ID),
    "console/recent.py:Recent._kept": Bound(recent.SUMS_KEPT_MAX, _ID),
    "console/consumers.py:Consumers._known": Bound(consumers.REMEMBERED_MAX, 4_000),
    # The ids of its rows, which records have too, and its query.
    "console/queues.py:QueuesPage._shown": Bound(
        queues.SHOWN_MAX, 8 * queues.ROWS + 6 * 4 * queues.FILTER_CHARACTERS_MAX + 1_000
    ),
    "dialects/discue/messages.py:_collection": Bound(
        messages._collection.cache_info().maxsize or 0, 2 * _ID
    ),
    # Names of our own, and not of a listener's owner.
    "delivery/transport.py:_known_names": Bound(transport.NAMES_REMEMBERED_MAX, 10 * _ID),
    "delivery/lookups.py:Lookups._known": Bound(lookups.NAMES_MAX, 1_500),
    "dialects/anypoint/names.py:_id_of": Bound(names._id_of.cache_info().maxsize or 0, 2 * _ID),
    "dialects/anypoint/wire.py:_http_date": Bound(wire._http_date.cache_info().maxsize or 0, _ID),
    # By types, which are in the source.
    "dialects/json.py:_plans": Bound(json.PLANS_MAX, 4_000),
    "dialects/json.py:_outline": Bound(json._outline.cache_info().maxsize or 0, 4_000),
    "dialects/json.py:_shape": Bound(json._shape.cache_info().maxsize or 0, 4_000),
}
# What is kept because it is needed, each with what it is as many as.
KEPT = {
    "arrow.py:_Page._done": "the columns of a page",
    "console/live.py:Live._watchers": "live.STREAMS_MAX",
    "console/live.py:_Watcher.rows": "live.ROWS_MAX",
    "console/live.py:_Watcher.shown": "values of one page",
    "console/live.py:_Watcher.values": "values of one page",
    "console/assets.py:Files._files": "files of the console",
    "console/assets.py:Files._packed": "files of the console",
    "console/assets.py:Files.names": "files of the console",
    "console/guard.py:Codes._codes": "guard.CODES_MAX",
    "console/life.py:_Watched.messages": "life.COPIES_MAX",
    "console/life.py:_Watched.open": "life.COPIES_MAX",
    "console/life.py:_Watched._seqs": "life.COPIES_MAX",
    "console/life.py:_Watched._queues": "life.COPIES_MAX",
    "console/life.py:_Watched._leased": "life.COPIES_MAX",
    "console/life.py:_Watched._passed": "life.COPIES_MAX",
    "console/life.py:_Watched.switches": "life.SWITCHES_MAX",
    "console/recent.py:Recent._latest": "recent.TENANTS_KEPT_MAX, each a query of two minutes",
    "console/lake.py:LakePages._tables": "tables of a lake",
    "console/pages.py:Pages.handlers": "routes",
    "console/runs.py:Runs._stopping": "plans.PLANS_MAX",
    "console/runs.py:Runs._tasks": "plans.PLANS_MAX",
    "core/broker.py:Broker._hints": "Limits.connections_max",
    "core/schemas.py:_Check._enums": "the parts of a schema",
    "core/schemas.py:_Look._compiled": "the parts of a schema",
    "core/schemas.py:_Check._path": "the depth of a schema",
    "core/schemas.py:_Check._required": "the parts of a schema",
    "core/schemas.py:_Check.problems": "the parts of a schema",
    "core/sessions.py:Sessions._used_ms": "sessions in the store",
    "core/signins.py:SignIns._counts": "signins.FAILURES_MAX",
    "core/waiters.py:Waiters._waiting": "Limits.connections_max, listeners, workers",
    "core/usage.py:Usage._requests": "tenants, since the last sweep",
    "core/watch.py:Watch._exceeded": "queues in the store",
    "delivery/feed.py:Feed._calls": "pushes_max",
    "delivery/line.py:Line._ahead": "messages that a line takes at a time",
    "delivery/line.py:Line._settled": "pushes_max",
    "delivery/line.py:Line.sending": "pushes_max",
    "delivery/lookups.py:Lookups._running": "pushes_max",
    "delivery/connections.py:Pool._free": "pushes_max",
    "delivery/connections.py:Pool._idle_s": "pushes_max",
    "delivery/connections.py:Pool._links": "pushes_max",
    "delivery/connections.py:Pool._used": "pushes_max",
    "delivery/connections.py:Pool._waiting": "pushes_max",
    "delivery/moments.py:Deadlines._until_s": "pushes_max",
    "delivery/moments.py:Soon._calls": "listeners in the store",
    "delivery/runner.py:Runners._running": "listeners and push consumers in the store",
    "delivery/slots.py:Seat._began": "pushes_max",
    "delivery/slots.py:Seat._started": "pushes_max",
    "delivery/liveness.py:LivenessNotes._waiting": "listeners in the store",
    "delivery/room.py:PushRoom._hungry": "tenants with listeners or workers in the store",
    "delivery/room.py:PushRoom._tenants": "tenants with listeners or workers in the store",
    "delivery/room.py:PushRoom._turns": "tenants with listeners or workers in the store",
    "delivery/room.py:_Holder.queues": "queues with listeners or workers in the store",
    "delivery/room.py:_Holder.waiting": "listeners and workers in the store",
    "dialects/folding.py:Folded._read": "the slices of a request",
    "dialects/folding.py:Folded._runs": "the slices of a request",
    "delivery/slots.py:Slots._turns": "tenants with listeners or workers in the store",
    "delivery/slots.py:Slots._tenants": "tenants with listeners or workers in the store",
    "delivery/slots.py:_Tenant.queues": "queues with listeners or workers in the store",
    "delivery/verifier.py:DomainVerifier._looked": "domains in the store",
    "long_texts.py:LongTexts._texts": "messages of one answer, whose bodies the allowance counts",
    "reader.py:Reader._headers": "Limits.headers_max",
    "reader.py:Reader.ready": "Limits.pipelined_max, and those of one read",
    "telemetry.py:Meter._recent": "telemetry.COUNTED_AT_ONCE",
    "telemetry.py:Meter.statuses": "statuses",
    "telemetry.py:Telemetry._meters": "routes",
    "telemetry.py:Telemetry._signins": "reasons why a sign-in fails",
    "telemetry.py:Telemetry.collectors": "parts of the server that have metrics",
    "traffic.py:Traffic._addresses": "Limits.connections_max",
    "traffic.py:Held._counts": "Limits.connections_max and lingering_max",
    "serving.py:Server._handshakes": "Limits.handshakes_max",
    "traffic.py:Traffic._lingering": "Limits.lingering_max",
    "traffic.py:Traffic._open": "Limits.connections_max",
    "traffic.py:Traffic._tasks": "Limits.connections_max",
    "traffic.py:Traffic.connections": "Limits.connections_max and lingering_max",
}
_COLLECTIONS = {"set", "dict", "list", "deque", "OrderedDict", "defaultdict", "WeakValueDictionary"}
_DECORATORS = {"lru_cache", "cache", "cached_property"}


def named(node: ast.expr) -> str:
    """What is called or used as a decorator, without its module."""
    if isinstance(node, ast.Call):
        return named(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    return isinstance(value, ast.Call) and named(value) in _COLLECTIONS and not value.args


def growing(tree: ast.Module) -> Iterator[str]:
    """Caches of functions, and attributes that begin as an empty collection."""
    for top in tree.body:
        if (
            isinstance(top, ast.FunctionDef)
            and {named(d) for d in top.decorator_list} & _DECORATORS
        ):
            yield top.name
        if isinstance(top, ast.Assign | ast.AnnAssign):
            target = top.target if isinstance(top, ast.AnnAssign) else top.targets[0]
            made = top.value
            if isinstance(made, ast.Call) and named(made) in _DECORATORS:
                yield ast.unparse(target)
            if is_empty(made) and ast.unparse(target).islower():  # not a constant
                yield ast.unparse(target)
    for owner in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        for node in ast.walk(owner):
            if isinstance(node, ast.FunctionDef) and {
                named(d) for d in node.decorator_list
            } & _DECORATORS - {"cached_property"}:
                yield f"{owner.name}.{node.name}"
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                yield from (f"{owner.name}.{name}" for name in begun_empty(node))


def begun_empty(maker: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(maker):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            cached = isinstance(node.value, ast.Call) and named(node.value) in _DECORATORS
            if isinstance(target, ast.Attribute) and (is_empty(node.value) or cached):
                yield target.attr


def found() -> set[str]:
    return {
        f"{file.relative_to(ROOT).as_posix()}:{name}"
        for file in sorted(ROOT.rglob("*.py"))
        if file.relative_to(ROOT).parts[0] not in ELSEWHERE
        for name in growing(ast.parse(file.read_text()))
    }


def test_everything_that_grows_has_a_bound_here() -> None:
    assert found() == CACHES.keys() | KEPT.keys()


def test_all_caches_together_stay_small() -> None:
    assert all(bound.entries and bound.bytes_each for bound in CACHES.values())
    assert sum(bound.entries * bound.bytes_each for bound in CACHES.values()) <= ALL_BYTES_MAX


def test_a_new_cache_is_seen_however_it_is_written() -> None:
    source = """
@functools.lru_cache(maxsize=None)
def one(text): ...
two = lru_cache()(one)
class Three:
    def __init__(self):
        self.four: dict[str, str] = {}
        self._five = cache(self.six)
        self.seven = collections.OrderedDict()
    @lru_cache
    def eight(self): ...
"""
    names = set(growing(ast.parse(source)))
    assert names == {"one", "two", "Three.four", "Three._five", "Three.seven", "Three.eight"}
