"""All pages, once the first of them is wanted: their handlers, and how they are rendered."""

import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
import msgspec
from markupsafe import Markup, escape

from courier import words
from courier.console import Page, Services, operates, relative
from courier.console.actions import Actions
from courier.console.assets import Files
from courier.console.connections import Connections
from courier.console.doors import Doors, SignInFacts
from courier.console.downloads import Downloads
from courier.console.events import EventsPage
from courier.console.exchange import ExchangePages
from courier.console.facts import Facts
from courier.console.guard import page_after
from courier.console.lake import LakePages
from courier.console.live import Live
from courier.console.message import MessagePage
from courier.console.past import Past
from courier.console.planning import Planning
from courier.console.queue import QueuePage
from courier.console.queues import QueuesPage
from courier.console.receivers import Receivers
from courier.console.settings import SettingsPages
from courier.console.spans import duration_text, moment_ms
from courier.core.types import MINUTE_MS, Key
from courier.web import Handler, Request

_TEMPLATES = Path(__file__).parent / "templates"
# What of a query is repeated in links: the parameters that pages know, and no more of each.
VALUE_CHARACTERS_MAX = 500
PARAMETERS = frozenset(
    ("q", "state", "sort", "after", "tenant", "since", "until", "last", "against", "path",
     "other_since", "other_until", "order", "queue", "kind", "actor",
     "dialect", "before", "body", "at", "headers")
)  # fmt: skip
_LINK = re.compile(r'href="([^"#]*console[^"#]*)(#[^"]*)?"(?! data-now)')
_SEARCH = re.compile(r'<form (?=[^<>]*method="get")[^<>]*>(?!<!--now-->)')
_WORDS = (
    words.number,
    words.rate,
    words.size,
    words.duration,
    words.clock,
    words.precise,
    words.minute,
    words.exact,
    words.iso,
    words.short,
    words.message_short,
    words.preview,
)
_TITLES = {
    400: "This cannot be done as asked",
    401: "Please sign in",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "This conflicts with what is there",
    410: "No longer kept",
    413: "Too much",
    429: "Too many attempts",
    503: "Not now",
}


class Pages:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.files = Files()
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            **{each.__name__: each for each in _WORDS},
            "body": _body,
            "ticked": _ticked,
            "sentence": _sentence,
            "typed": duration_text,
        }
        self._environment.filters |= {"tojson_text": _json, "event_words": event_words}
        self._environment.globals |= {
            "static": self.files.names,
            "titles": _TITLES,
            "again": again,
        }
        for name in self._environment.list_templates():
            self._environment.get_template(name)
        self.handlers: dict[str, Handler] = {}
        facts = Facts(services)
        self._lake = LakePages(services)
        facts.audit = self._lake.look
        queues, queue = QueuesPage(services, facts), QueuePage(services, facts, self._lake)
        exchanges = ExchangePages(services, facts, Past(services))
        queue.gone = exchanges.deleted
        self._live = Live(services, facts, queues)
        self.planning = Planning(services, self._lake)
        queue.plans_of = self.planning.marks
        for part in (
            Doors(services),
            self.files,
            queues,
            queue,
            Actions(services, queue),
            Receivers(services, queue),
            Connections(services),
            MessagePage(services, facts, self._lake),
            Downloads(services),
            EventsPage(services),
            SettingsPages(services, facts),
            self.planning,
            exchanges,
            self._lake,
            self._live,
        ):
            self.handlers |= part.handlers()

    def drain(self) -> None:
        self._live.drain()
        self.planning.runs.drain()
        self._lake.drain()

    def wrong_sign_in(self, request: Request) -> Page:
        then = page_after(request.query.get("then", [""])[-1])
        problem = "No key, and no user with that password, is known here."
        return Page("sign_in.html", SignInFacts(then, problem), status=401)

    def render(self, page: Page, request: Request) -> bytes:
        """The page as HTML. `facts` is what it shows, the rest is about who looks."""
        key = request.key
        session = self._services.guard.session(request)
        query = {
            name: values[-1][:VALUE_CHARACTERS_MAX]
            for name, values in request.query.items()
            if name in PARAMETERS
        }
        at = query.get("at", "") if page.status < 400 else ""
        tenant = query.get("tenant", "") or page.tenant
        now_ms = self._services.clock.now_ms()
        shown = self._environment.get_template(page.template).render(
            facts=page.facts,
            now_ms=now_ms,
            at=at,
            at_ms=moment_ms(at, "at") // MINUTE_MS * MINUTE_MS if at else 0,
            key=key,
            operator=key is not None and operates(key),
            can=_can(key),
            # What was cannot be changed: pages of the past have no forms that do.
            token=self._services.guard.form_token(session) if session and not at else "",
            query=_Query(query),
            # Where somebody is, for forms that lead back there.
            view=request.path + again(query) if request.method == "GET" else "",
            tenant=tenant,
            tenant_query=again({}, tenant=tenant),
            scopes=words.listing(sorted({grant.scope for grant in key.grants}), 20) if key else "",
            href=lambda path: relative(request, path),
            page=page.template.removesuffix(".html"),
        )
        shown = kept_at(shown, at) if at else shown
        return shown.encode("utf-8", "surrogatepass")


def kept_at(text: str, at: str) -> str:
    """The page with `at` in every link to another page of the console, and in every search."""
    query = escape(urlencode({"at": at}))

    def link(match: re.Match[str]) -> str:
        path, mark = match[1], match[2] or ""
        if "/static/" in path or "at=" in path:
            return match[0]
        return f'href="{path}{"&amp;" if "?" in path else "?"}{query}{mark}"'

    hidden = f'<input type="hidden" name="at" value="{escape(at)}">'
    text = _LINK.sub(link, text)
    return _SEARCH.sub(lambda match: match[0] + hidden, text)


def _finalize(value: Any) -> Any:
    """Nothing that is shown holds control or direction characters."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return words.printable(value)
    return value


class _Query(dict[str, str]):
    """The query's last values; what was not given is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def again(query: dict[str, str], **changes: object) -> str:
    """The query of the same page with some changes; what is empty is left out."""
    wanted = {**query, **{name: str(value) for name, value in changes.items()}}
    kept = {name: value for name, value in wanted.items() if value not in ("", "0")}
    return f"?{urlencode(kept)}" if kept else ""


def _body(text: str) -> Markup:
    """Text of several lines, as a text node; what cannot be seen is shown as an escape.

    Quotes stand for themselves there, and JSON has many of them.
    """
    return Markup(html.escape(words.printable(text, keep="\n\t"), quote=False))


def _ticked(text: str) -> Markup:
    """A sentence with what is between backticks as code."""
    parts = [html.escape(each) for each in text.split("`")]
    return Markup("".join(f"<code>{p}</code>" if n % 2 else p for n, p in enumerate(parts)))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def event_words(kind: str) -> str:
    return kind.replace("_", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _can(key: Key | None) -> "Any":
    """Which actions are drawn; all of them are decided again when they are asked for."""
    if key is None:
        return lambda scope: False
    held = {grant.scope for grant in key.grants}
    return lambda scope: scope in held or operates(key)
