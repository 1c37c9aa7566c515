"""The OpenAPI document of a site, made from its route table, and a page to read it on."""

import html
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from courier import __version__
from courier.dialects.example import curl, example
from courier.web import JSON, Parameter, Request, Response, Route

if TYPE_CHECKING:
    from courier.dialects.site import DocumentedSite

NO_CONTENT = 204
# What a body is that is not JSON.
ARROW = "application/vnd.apache.arrow.stream"
_PATH_PARAMETER = re.compile(r"{(\w+)}")


class Documents:
    """The document and the page of a site, made when first asked for and kept as bytes."""

    def __init__(self, site: "DocumentedSite", routes: Sequence[Route]) -> None:
        self._site = site
        self._routes = routes

    def document(self, request: Request) -> Response:
        return _unless_known(self._document, request)

    def page(self, request: Request) -> Response:
        return _unless_known(self._page, request)

    @cached_property
    def _document(self) -> Response:
        routes = self._routes
        types = [each for route in routes for each in (route.body, route.result) if each]
        types = [each for each in types if each is not bytes]
        types += [parameter.type for route in routes for parameter in route.query]
        schemas, components = msgspec.json.schema_components(
            types, ref_template="#/components/schemas/{name}"
        )
        schema_of = {id(each): schema for each, schema in zip(types, schemas, strict=True)}
        paths: dict[str, dict[str, Any]] = {}
        for route in routes:
            paths.setdefault(self._site.prefix + route.path, {})[route.method.lower()] = _operation(
                route, schema_of, self._site.envelope, self._refused(), self.example(route)
            )
        document = {
            "openapi": "3.1.0",
            "info": {"title": self._site.title, "version": __version__},
            "paths": paths,
            "components": {
                "schemas": {**components, "Failure": self._site.failure},
                "securitySchemes": self._site.security,
            },
        }
        return _versioned(msgspec.json.encode(document), JSON)

    def _refused(self) -> dict[str, Any]:
        content = {self._site.failure_media: {"schema": {"$ref": "#/components/schemas/Failure"}}}
        refused = {"description": "Refused.", "content": content}
        return {str(status): refused for status in self._site.failures}

    def example(self, route: Route) -> Any:
        """A body for the route, None if it has none."""
        return None if route.body in (None, bytes) else example(route.body, self._site.samples)

    @property
    def _header(self) -> str:
        """The header that shows a token, as curl sends it."""
        name = self._site.security["token"].get("name", "")
        token = f"${self._site.shell.token}"
        return f"{name}: {token}" if name else f"Authorization: Bearer {token}"

    def curl(self, route: Route) -> str:
        """The line that sends an example of the route."""
        header = self._header if route.scope else ""
        asked = "&".join(f"{each.name}={each.example}" for each in route.query if each.example)
        path = self._site.prefix + route.path + (asked and f"?{asked}")
        return curl(self._site.shell, route.method, path, header, self.example(route))

    @cached_property
    def _page(self) -> Response:
        """The same table for a person, with no script and nothing loaded from elsewhere."""
        families: dict[str, list[str]] = {}
        for route in self._routes:
            section = _section(self._site.prefix, route, self.curl(route))
            families.setdefault(route.family, []).append(section)
        rows = "".join(
            f'<h2 id="{family}">{family.capitalize()}</h2>{"".join(sections)}'
            for family, sections in families.items()
        )
        links = " · ".join(f'<a href="#{family}">{family}</a>' for family in families)
        home = self._site.prefix + self._site.docs_path
        title = html.escape(self._site.title)
        setup = html.escape("\n".join(filter(None, (_VARIABLES, self._site.shell.login))))
        page = _PAGE.format(title=title, rows=rows, links=links, home=home, setup=setup).encode()
        return _versioned(page, b"text/html; charset=utf-8")


def _versioned(body: bytes, content_type: bytes) -> Response:
    version = b'"%s"' % sha256(body).hexdigest()[:32].encode()
    return Response(body, content_type=content_type, headers=((b"etag", version),))


def _unless_known(response: Response, request: Request) -> Response:
    """The answer, or that the caller has it already."""
    [(_, version)] = response.headers
    if request.headers.get(b"if-none-match") == version:
        return Response(b"", 304, response.content_type, response.headers)
    return response


def _operation(
    route: Route,
    schema_of: dict[int, dict[str, Any]],
    envelope: Callable[[dict[str, Any]], dict[str, Any]],
    refused: dict[str, Any],
    shown: Any,
) -> dict[str, Any]:
    result = schema_of[id(route.result)] if route.result is not None else {}
    done: dict[str, Any] = {"description": "Done."}
    if route.status != NO_CONTENT:
        done["content"] = {
            kind: {"schema": envelope(result)} if kind == "application/json" else {}
            for kind in route.media
        }
    operation: dict[str, Any] = {
        "operationId": route.contract or route.operation,
        "summary": route.summary,
        "tags": [route.family],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
              for name in _PATH_PARAMETER.findall(route.path)),
            *(_query(parameter, schema_of) for parameter in route.query),
        ],
        "responses": {
            str(route.status): done,
            **{str(status): {"description": "Nothing."} for status in route.others},
            **refused,
        },
    }  # fmt: skip
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {ARROW: {}}
            if route.body is bytes
            else _json(schema_of[id(route.body)], shown),
        }
    if route.scope is not None:
        operation["security"] = [{"token": []}]
    return operation


def _json(schema: dict[str, Any], shown: Any = None) -> dict[str, Any]:
    content = {"schema": schema} if shown is None else {"schema": schema, "example": shown}
    return {"application/json": content}


def _query(parameter: Parameter, schema_of: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.description,
        "schema": schema_of[id(parameter.type)],
    }


def _section(prefix: str, route: Route, line: str) -> str:
    parts = [
        f"<h3><b>{route.method}</b> <code>{html.escape(prefix + route.path)}</code></h3>",
        f"<p>{html.escape(route.summary)}.</p>",
    ]
    if route.scope and route.scope != "any":
        parts.append(f"<p>Needs a key with scope <code>{route.scope}</code>.</p>")
    for parameter in route.query:
        text = html.escape(parameter.description)
        parts.append(f"<p>Query <code>{parameter.name}</code>: {text}</p>")
    label = f"curl: {html.escape(route.summary)}"
    parts.append(f'<pre class="line" aria-label="{label}">{html.escape(line)}</pre>')
    for label, type in (("Request", route.body), ("Result", route.result)):
        if type not in (None, bytes):
            schema = msgspec.json.format(msgspec.json.encode(msgspec.json.schema(type)))
            text = html.escape(schema.decode())
            shown = f'<pre tabindex="0">{text}</pre>'
            parts.append(f"<details><summary>{label}</summary>{shown}</details>")
    return f"<section>{''.join(parts)}</section>"


_VARIABLES = 'eval "$(courier credentials --env)"'
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --soft: #f6f8fa;
  --link: #0a58ca }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --paper: #0d1117; --line: #30363d;
  --soft: #161b22; --link: #79b8ff }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }}
a {{ color: var(--link) }}
h3 {{ margin: 0; font-size: 1rem; font-weight: 400; overflow-wrap: anywhere }}
h3 b {{ display: inline-block; min-width: 4.5rem; color: var(--link) }}
section {{ border: 1px solid var(--line); border-radius: 6px; padding: .75rem 1rem;
  margin: .75rem 0 }}
section p {{ margin: .25rem 0 }}
code, pre {{ font: 14px/1.4 ui-monospace, monospace }}
pre {{ background: var(--soft); padding: .75rem; overflow: auto }}
pre.line {{ white-space: pre-wrap; overflow-wrap: anywhere }}
</style></head><body><main>
<h1>{title}</h1>
<p>{links} · the same table as <a href="{home}/openapi.json">OpenAPI</a></p>
<p>For the lines below, set the variables of a tenant first. Those that this does not set, such as
<code>$QUEUE</code> or <code>$MESSAGE_ID</code>, are names and ids of yours.</p>
<pre class="line">{setup}</pre>
{rows}
</main></body></html>
"""
