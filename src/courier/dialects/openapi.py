"""The OpenAPI document of a site, made from its route table, and a page to read it on."""

import html
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from courier import __version__
from courier.web import JSON, Parameter, Request, Response, Route

NO_CONTENT = 204
_PATH_PARAMETER = re.compile(r"{(\w+)}")


class Documents:
    """The document and the page of one site, made when first asked for and kept as bytes.

    `envelope` wraps the schema of a result; `failure` is the schema of every error answer.
    """

    def __init__(
        self,
        title: str,
        prefix: str,
        routes: Sequence[Route],
        *,
        home: str = "",
        envelope: Callable[[dict[str, Any]], dict[str, Any]],
        failure: dict[str, Any],
        failures: Sequence[int],
        security: dict[str, Any],
    ) -> None:
        self._title = title
        self._prefix = prefix
        self._routes = routes
        self._home = home
        self._envelope = envelope
        self._failure = failure
        self._failures = failures
        self._security = security

    def document(self, request: Request) -> Response:
        return _unless_known(self._document, request, JSON)

    def page(self, request: Request) -> Response:
        return _unless_known(self._page, request, b"text/html; charset=utf-8")

    @cached_property
    def _document(self) -> bytes:
        routes = self._routes
        types = [each for route in routes for each in (route.body, route.result) if each]
        types += [parameter.type for route in routes for parameter in route.query]
        schemas, components = msgspec.json.schema_components(
            types, ref_template="#/components/schemas/{name}"
        )
        schema_of = {id(each): schema for each, schema in zip(types, schemas, strict=True)}
        paths: dict[str, dict[str, Any]] = {}
        for route in routes:
            paths.setdefault(self._prefix + route.path, {})[route.method.lower()] = _operation(
                route, schema_of, self._envelope, self._failures
            )
        return msgspec.json.encode(
            {
                "openapi": "3.1.0",
                "info": {"title": self._title, "version": __version__},
                "paths": paths,
                "components": {
                    "schemas": {**components, "Failure": self._failure},
                    "securitySchemes": self._security,
                },
            }
        )

    @cached_property
    def _page(self) -> bytes:
        """The same table for a person, with no script and nothing loaded from elsewhere."""
        families: dict[str, list[str]] = {}
        for route in self._routes:
            families.setdefault(route.family, []).append(_section(self._prefix, route))
        rows = "".join(
            f'<h2 id="{family}">{family.capitalize()}</h2>{"".join(sections)}'
            for family, sections in families.items()
        )
        links = " · ".join(f'<a href="#{family}">{family}</a>' for family in families)
        home = self._prefix + self._home
        title = html.escape(self._title)
        return _PAGE.format(title=title, rows=rows, links=links, home=home).encode()


def _unless_known(body: bytes, request: Request, content_type: bytes) -> Response:
    """The body, or that the caller has it already."""
    version = b'"%s"' % sha256(body).hexdigest()[:32].encode()
    headers = ((b"etag", version),)
    if request.headers.get(b"if-none-match") == version:
        return Response(b"", 304, content_type, headers)
    return Response(body, content_type=content_type, headers=headers)


def _operation(
    route: Route,
    schema_of: dict[int, dict[str, Any]],
    envelope: Callable[[dict[str, Any]], dict[str, Any]],
    failures: Sequence[int],
) -> dict[str, Any]:
    result = schema_of[id(route.result)] if route.result is not None else {}
    done: dict[str, Any] = {"description": "Done."}
    if route.status != NO_CONTENT:
        done["content"] = _json(envelope(result))
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
            **{
                str(status): {
                    "description": "Refused.",
                    "content": _json({"$ref": "#/components/schemas/Failure"}),
                }
                for status in failures
            },
        },
    }  # fmt: skip
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": _json(schema_of[id(route.body)]),
        }
    if route.scope is not None:
        operation["security"] = [{"token": []}]
    return operation


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _query(parameter: Parameter, schema_of: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.description,
        "schema": schema_of[id(parameter.type)],
    }


def _section(prefix: str, route: Route) -> str:
    parts = [
        f"<h3><b>{route.method}</b> <code>{html.escape(prefix + route.path)}</code></h3>",
        f"<p>{html.escape(route.summary)}.</p>",
    ]
    if route.scope and route.scope != "any":
        parts.append(f"<p>Needs a key with scope <code>{route.scope}</code>.</p>")
    for parameter in route.query:
        text = html.escape(parameter.description)
        parts.append(f"<p>Query <code>{parameter.name}</code>: {text}</p>")
    for label, type in (("Request", route.body), ("Result", route.result)):
        if type is not None:
            schema = msgspec.json.format(msgspec.json.encode(msgspec.json.schema(type)))
            text = html.escape(schema.decode())
            parts.append(f"<details><summary>{label}</summary><pre>{text}</pre></details>")
    return f"<section>{''.join(parts)}</section>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }}
h3 {{ margin: 0; font-size: 1rem; font-weight: 400 }}
h3 b {{ display: inline-block; min-width: 4.5rem; color: #0a58ca }}
section {{ border: 1px solid #d0d7de; border-radius: 6px; padding: .75rem 1rem; margin: .75rem 0 }}
section p {{ margin: .25rem 0 }}
code, pre {{ font: 14px/1.4 ui-monospace, monospace }}
pre {{ background: #f6f8fa; padding: .75rem; overflow: auto }}
</style></head><body>
<h1>{title}</h1>
<p>{links} · the same table as <a href="{home}/openapi.json">OpenAPI</a></p>
{rows}
</body></html>
"""
