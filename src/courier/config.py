"""Every setting of the server: its default, its range, and where its value came from.

Later sources win: defaults, then a TOML file, then `COURIER_<FIELD>` variables, then flags.
Nothing else in Courier reads the environment.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints
from urllib.parse import urlsplit

from courier.masking import HIDDEN, masked, masked_url

_PREFIX = "COURIER_"

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30
_TIB = 1 << 40

_UNITS: dict[str, dict[str, int]] = {
    "ms": {"ms": 1, "s": _SECOND_MS, "m": _MINUTE_MS, "h": _HOUR_MS, "d": _DAY_MS},
    "bytes": {
        **{"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
        **{"kib": _KIB, "mib": _MIB, "gib": _GIB, "tib": _TIB},
    },
}
_NUMBER = re.compile(r"([0-9][0-9_]{0,30})\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "on": True, "1": True}
_WORDS |= {"false": False, "no": False, "off": False, "0": False}


DATABASE = "postgresql://"


class ConfigError(Exception):
    """A setting cannot be used; the message is one sentence for the person who set it."""


@dataclass(frozen=True)
class Spec:
    """What a setting is for and which values it takes."""

    help: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    database: bool = False  # an address of PostgreSQL is taken, too
    url: bool = False
    urls: bool = False  # several, each as name=URL
    empty: bool = False
    secret: bool = False

    @property
    def addresses(self) -> bool:
        """Values are addresses, in which a password can stand."""
        return self.url or self.urls or self.database


@dataclass(frozen=True, kw_only=True, repr=False)
class Config:
    """The settings of one server, checked. `sources` says where each value came from."""

    host: Annotated[str, Spec("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Spec("Port to listen on; 0 takes any free port.", high=65_535)] = 8787
    data: Annotated[Path, Spec("Directory of the store and of the credentials files.")] = Path(
        "courier-data"
    )
    store: Annotated[
        str,
        Spec(
            "Where messages are kept: a file in the data directory, memory for a demo, or a "
            "PostgreSQL database that several servers share.",
            choices=("sqlite", "memory"),
            database=True,
        ),
    ] = "sqlite"
    public_url: Annotated[
        str,
        Spec("Address that clients use, if it differs from host and port.", url=True),
    ] = ""
    tls_certificate: Annotated[
        str,
        Spec("PEM file with the server's certificate chain. Empty: no TLS.", empty=True),
    ] = ""
    tls_key: Annotated[
        str, Spec("PEM file with the private key of that certificate.", empty=True)
    ] = ""
    trusted_proxies: Annotated[
        str,
        Spec(
            "Networks of proxies whose X-Forwarded-For or Forwarded header is trusted, separated "
            "by commas, such as 10.0.0.0/8. Empty: none.",
            empty=True,
        ),
    ] = ""
    log_level: Annotated[
        str,
        Spec("Lowest level of log lines to write.", choices=("debug", "info", "warning", "error")),
    ] = "info"
    log_format: Annotated[
        str,
        Spec(
            "Format of log lines; auto is text on a terminal and JSON elsewhere.",
            choices=("auto", "json", "text"),
        ),
    ] = "auto"
    metrics_public: Annotated[
        bool,
        Spec("Serve /metrics without a key; it names every tenant, queue and listener."),
    ] = False
    console: Annotated[bool, Spec("Serve the pages under /console.")] = True
    plans_bytes_max: Annotated[
        int,
        Spec(
            "Maximum bytes of messages kept to undo plans of the console; the oldest are removed "
            "first.",
            low=_MIB,
            high=_TIB,
        ),
    ] = _GIB
    log_requests: Annotated[bool, Spec("Write one log line for every request.")] = False
    request_bytes_max: Annotated[
        int, Spec("Largest request body accepted.", low=_KIB, high=_GIB)
    ] = 64 * _MIB
    bodies_bytes_max: Annotated[
        int,
        Spec(
            "Maximum bytes of request bodies being received and handled at a time.",
            low=_MIB,
            high=_TIB,
        ),
    ] = 256 * _MIB
    answers_bytes_max: Annotated[
        int,
        Spec(
            "Maximum bytes of messages being sent to clients at a time.",
            low=16 * _MIB,
            high=_TIB,
        ),
    ] = 256 * _MIB
    request_wait_ms_max: Annotated[
        int, Spec("Longest wait for a complete request body.", low=100, high=_HOUR_MS)
    ] = 30 * _SECOND_MS
    header_bytes_max: Annotated[
        int, Spec("Largest request line and headers accepted.", low=_KIB, high=16 * _MIB)
    ] = 64 * _KIB
    header_wait_ms_max: Annotated[
        int, Spec("Longest wait for the complete headers of a request.", low=100, high=_HOUR_MS)
    ] = 15 * _SECOND_MS
    connections_max: Annotated[
        int, Spec("Maximum number of open connections.", low=1, high=1_000_000)
    ] = 10_000
    connections_per_address_max: Annotated[
        int,
        Spec(
            "Maximum number of open connections from one address; trusted proxies may have more.",
            low=1,
            high=1_000_000,
        ),
    ] = 5_000
    idle_wait_ms_max: Annotated[
        int, Spec("Longest wait for the next request on an open connection.", low=100, high=_DAY_MS)
    ] = 75 * _SECOND_MS
    drain_wait_ms_max: Annotated[
        int, Spec("Longest wait for running requests when the server stops.", high=_HOUR_MS)
    ] = 25 * _SECOND_MS
    commit_calls_max: Annotated[
        int,
        Spec("Maximum number of store calls that share one commit to disk.", low=1, high=100_000),
    ] = 1_024
    commit_inline_ms_max: Annotated[
        int,
        Spec(
            "Commits that usually take less than this run without a thread; 0 always uses one.",
            high=_MINUTE_MS,
        ),
    ] = 1
    cache_bytes: Annotated[
        int, Spec("Memory for the store's cache of its file.", low=_MIB, high=_TIB)
    ] = 32 * _MIB
    disk_free_bytes_min: Annotated[
        int,
        Spec(
            "Free disk space below which publishing is refused while messages can still be pulled"
            " and acknowledged; at most a sixteenth of the disk; 0 is no limit.",
            high=_TIB,
        ),
    ] = 256 * _MIB
    check_at_start: Annotated[
        str,
        Spec(
            "How the database is checked for damage at the start: quick takes half a second at "
            "most, full reads all of it.",
            choices=("off", "quick", "full"),
        ),
    ] = "quick"
    accept_damage: Annotated[
        bool, Spec("Start on a damaged store with what can be read, and lose the rest.")
    ] = False
    sweep_every_ms: Annotated[
        int,
        Spec("Longest time between two sweeps for what is due.", low=1, high=_MINUTE_MS),
    ] = 200
    sweep_batch_max: Annotated[
        int,
        Spec("Maximum number of due items handled in one step of a sweep.", low=1, high=100_000),
    ] = 1_000
    clock_step_wait_ms: Annotated[
        int,
        Spec(
            "How long a step of the wall clock by more than a minute must last before it is "
            "followed.",
            low=100,
            high=_DAY_MS,
        ),
    ] = _MINUTE_MS
    journal_retention_ms: Annotated[
        int, Spec("Minimum time that journal events are kept.", high=3_650 * _DAY_MS)
    ] = 7 * _DAY_MS
    journal_bytes_max: Annotated[
        int,
        Spec(
            "Journal size above which the oldest events are deleted, read or not.",
            low=64 * _KIB,
            high=1_024 * _TIB,
        ),
    ] = 20 * _GIB
    journal_page_max: Annotated[
        int, Spec("Maximum number of events in one answer of GET /journal.", low=1, high=1_000_000)
    ] = 50_000
    queues_max: Annotated[
        int, Spec("Maximum number of queues of one tenant.", low=1, high=1_000_000)
    ] = 10_000
    queue_bytes_max: Annotated[
        int, Spec("Maximum body bytes waiting in one queue.", low=1, high=1_024 * _TIB)
    ] = 25_000_000_000
    queue_rate_max: Annotated[
        int, Spec("Maximum number of messages per second and queue; 0 is no limit.", high=1_000_000)
    ] = 0
    api_rate_max: Annotated[
        int,
        Spec(
            "Maximum number of settings requests per key in five minutes; 0 is no limit.",
            high=1_000_000,
        ),
    ] = 0
    json_body_encoding: Annotated[
        str,
        Spec(
            "How the Cloudflare dialect encodes bodies of JSON messages in pulls.",
            choices=("base64", "plain"),
        ),
    ] = "base64"
    region: Annotated[
        str,
        Spec(
            "Region in which Anypoint clients find this server's queues, unless they name another.",
            choices=(
                "us-east-1",
                "us-east-2",
                "us-west-2",
                "ca-central-1",
                "eu-west-1",
                "eu-west-2",
                "eu-central-1",
                "ap-southeast-1",
                "ap-southeast-2",
                "ap-northeast-1",
                "us-gov-west-1",
            ),
        ),
    ] = "us-east-1"
    encryption_keys: Annotated[
        str,
        Spec(
            "Keys of encrypted queues, 32 bytes in base64 each, separated by commas: the first "
            "encrypts, all decrypt. Empty: the file encryption.key in the data directory, created"
            " if it is missing.",
            empty=True,
            secret=True,
        ),
    ] = ""
    push_networks: Annotated[
        str,
        Spec(
            "Private networks that pushes may reach, separated by commas, such as "
            "127.0.0.0/8,10.1.0.0/16. Empty: public addresses only.",
            empty=True,
        ),
    ] = ""
    pushes_max: Annotated[
        int,
        Spec(
            "Maximum number of requests in flight to listeners and workers. One tenant uses at "
            "most three quarters of them.",
            low=1,
            high=100_000,
        ),
    ] = 1_000
    pushes_bytes_max: Annotated[
        int,
        Spec(
            "Maximum bytes of messages in flight to listeners and workers. One tenant uses at "
            "most three quarters of them; small messages of others do not wait.",
            low=_MIB,
            high=_TIB,
        ),
    ] = 256 * _MIB
    push_delay_percent: Annotated[
        int,
        Spec(
            "Percentage of the usual wait before a failed push is retried; less than 100 is for "
            "testing receivers.",
            low=1,
            high=100,
        ),
    ] = 100
    liveness_every_ms: Annotated[
        int,
        Spec(
            "Time between two probes of a listener that has messages waiting; ten times as long "
            "for one that has none.",
            low=100,
            high=_DAY_MS,
        ),
    ] = 30 * _SECOND_MS
    domains_required: Annotated[
        bool, Spec("Push only to hosts whose ownership the tenant has verified.")
    ] = False
    worker_urls: Annotated[
        str,
        Spec(
            "Where the scripts of worker consumers run, as name=URL or, for a tenant other than "
            "the first, tenant/name=URL, separated by commas; `courier worker add` does the same.",
            empty=True,
            urls=True,
        ),
    ] = ""
    worker_wait_ms_max: Annotated[
        int, Spec("Longest wait for a worker's answer to a batch.", low=100, high=_HOUR_MS)
    ] = 30 * _SECOND_MS
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        """Without secrets: this can stand in a traceback."""
        shown = [f"{each.name}={each.shown(getattr(self, each.name))!r}" for each in settings()]
        return f"Config({', '.join(shown)})"

    def url(self, port: int) -> str:
        """The address clients use when the server listens on `port`; no slash at the end."""
        if self.public_url:
            return self.public_url.rstrip("/")
        # Nobody can connect to a wildcard; this machine answers on its loopback address.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "https" if self.tls_certificate else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@dataclass(frozen=True)
class Setting:
    """One field of Config, as help texts and documentation show it."""

    name: str
    kind: type
    spec: Spec
    default: Any

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def values(self) -> str:
        """The values it takes, in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"a whole number from {self.spec.low} to {self.spec.high}"
        if self.spec.url:
            return "empty or an http:// or https:// address"
        if self.spec.empty:
            return "empty or text"
        if self.spec.database:
            return ", ".join(self.spec.choices) + f" or {DATABASE}USER:PASSWORD@HOST/NAME"
        *others, last = self.spec.choices or ("text that is not empty",)
        return f"{', '.join(others)} or {last}" if others else last

    def shown(self, value: object) -> str:
        """The value as it may be seen, in the spelling of a settings file."""
        if self.spec.secret and value:
            return HIDDEN
        if self.spec.addresses and value:
            # In the address of a database the hosts have commas between them.
            return masked_url(str(value)) if is_database(str(value)) else masked(str(value))
        return str(value).lower() if self.kind is bool else str(value)

    def parse(self, value: object, source: str) -> object:
        """The value in its type. Raises ConfigError when the setting does not take it."""
        parsed = _typed(self, value)
        if parsed is None or not _allowed(self, parsed):
            hides = self.spec.secret or self.spec.addresses
            shown = repr(self.shown(value) if hides and isinstance(value, str) else value)
            if hides and isinstance(value, Mapping | list):
                shown = HIDDEN
            raise ConfigError(f"{source}: {self.name} must be {self.values}, not {shown}")
        return parsed


def settings() -> list[Setting]:
    """Every setting, in the order of the documentation."""
    found = []
    for name, hint in get_type_hints(Config, include_extras=True).items():
        if name != "sources":
            kind, spec = get_args(hint)
            found.append(Setting(name, kind, spec, getattr(Config, name)))
    return found


def load(
    flags: Mapping[str, object],
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Put the settings together. A flag that is None was not given.

    Raises ConfigError for anything that names no setting and for any value out of its range.
    """
    known = {setting.name: setting for setting in settings()}
    values: dict[str, Any] = {}
    sources = dict.fromkeys(known, "default")
    given = [
        *_from_file(file),
        *_from_environ(os.environ if environ is None else environ),
        *_from_flags(flags),
    ]
    for name, value, source in given:
        if name not in known:
            raise ConfigError(_unknown(name, source, known))
        values[name] = known[name].parse(value, source)
        sources[name] = source
    return Config(**values, sources=sources)


def _from_file(file: Path | None) -> Iterator[tuple[str, object, str]]:
    if file is None:
        return
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"{file} is not a TOML file: {error}") from error
    for name, value in table.items():
        yield name, value, str(file)


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    for variable, value in environ.items():
        if variable.startswith(_PREFIX):
            yield variable.removeprefix(_PREFIX).lower(), value, variable


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    for name, value in flags.items():
        if value is not None:
            yield name, value, "--" + name.replace("_", "-")


def _unknown(name: str, source: str, known: Mapping[str, Setting]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "`courier config` lists all of them"
    return f"{source}: '{name}' names no setting; {hint}"


def _typed(setting: Setting, value: object) -> object | None:
    """The value in the setting's type, or None when it cannot be."""
    if setting.kind is bool and isinstance(value, str):
        return _WORDS.get(value.lower())
    if setting.kind is int and isinstance(value, str):
        unit = next((word for word in setting.name.split("_") if word in _UNITS), "")
        return amount(value, unit)
    if setting.kind is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    # Exact types: to Python True is an int, but nobody means it as a number.
    return value if type(value) is setting.kind else None


def amount(text: str, unit: str) -> int | None:
    """A whole number of `unit`, or None; times and sizes may name another: 30s, 7d, 64MiB."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    digits, named = match.groups()
    factor = _UNITS.get(unit, {}).get(named.lower()) if named else 1
    return None if factor is None else int(digits.replace("_", "")) * factor


def _allowed(setting: Setting, value: object) -> bool:
    spec = setting.spec
    if isinstance(value, int) and setting.kind is int:
        return spec.low <= value <= spec.high
    if isinstance(value, str) and spec.database and is_database(value):
        return value.isprintable() and masked_url(value) != DATABASE + HIDDEN
    if isinstance(value, str) and spec.choices:
        return value in spec.choices
    if isinstance(value, str) and spec.url:
        return value == "" or _is_http_url(value)
    return (spec.empty or str(value) != "") and "\0" not in str(value)


def is_database(store: str) -> bool:
    """The setting `store` is the address of a database that other servers use, too."""
    return store.startswith(DATABASE)


def has_password(store: str) -> bool:
    """The address of a database has a password in it, before its host or as a parameter."""
    place, _, parameters = store.removeprefix(DATABASE).partition("?")
    return ":" in place.rpartition("@")[0] or "password=" in parameters.lower()


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or parts.username) and port != 0
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def colours_wanted() -> bool:
    """What the terminal's user says, by the usual variables."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def described(config: Config) -> list[tuple[str, str, str, str]]:
    """Every setting: its name, its value as it may be seen, where that comes from, its meaning."""
    return [
        (
            each.name,
            each.shown(getattr(config, each.name)),
            config.sources.get(each.name, "default"),
            each.spec.help,
        )
        for each in settings()
    ]
