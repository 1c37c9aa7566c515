"""Pure: an example of a request, made from its schema, and the line of curl that sends it."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

# Members of an object that has none it needs.
MEMBERS_SHOWN = 3
DEPTH_MAX = 8
_TEXTS = (
    "orders",
    "https://example.org/orders",
    "hello",
    "1",
    "2026-01-31T12:00:00.000Z",
    "c0ffee00c0ffee00c0ffee00c0ffee00",
    "00000000-0000-4000-8000-000000000000",
)
_REFERENCE = "#/$defs/"


class Shell(Struct, frozen=True):
    """The variables of `courier credentials --env` that the lines of curl of an API are made of.

    `base` is the address, up to and with `below`; `names` are parts of paths. `login` is the line
    that gets a token, if it is not among them.
    """

    base: str
    token: str = "TOKEN"
    below: str = ""
    names: Mapping[str, str] = {}
    login: str = ""


_ANYPOINT = {
    "organizationId": "ANYPOINT_ORGANIZATION_ID",
    "environmentId": "ANYPOINT_ENVIRONMENT_ID",
    "regionId": "ANYPOINT_REGION",
}
_ACCESS_TOKEN = """sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/'"""
OPERATOR = Shell("ADMIN_BASE_URL", "ADMIN_TOKEN")
DISCUE = Shell("DISCUE_BASE_URL", "DISCUE_API_KEY", "/v1")
CLOUDFLARE = Shell(
    "CLOUDFLARE_BASE_URL",
    "CLOUDFLARE_API_TOKEN",
    "/client/v4",
    {"account_id": "CLOUDFLARE_ACCOUNT_ID"},
)
ANYPOINT_APP = Shell(
    "ANYPOINT_BASE_URL",
    names=_ANYPOINT,
    login='TOKEN=$(curl -s "$ANYPOINT_BASE_URL/api/v1/authorize" -d grant_type=client_credentials '
    '-d "client_id=$ANYPOINT_CLIENT_ID" -d "client_secret=$ANYPOINT_CLIENT_SECRET" '
    f"| {_ACCESS_TOKEN})",
)
ANYPOINT_USER = Shell(
    "ANYPOINT_BASE_URL",
    names=_ANYPOINT,
    login='TOKEN=$(curl -s "$ANYPOINT_BASE_URL/accounts/login" '
    '-d "username=$ANYPOINT_USER_USERNAME" -d "password=$ANYPOINT_USER_PASSWORD" '
    f"| {_ACCESS_TOKEN})",
)


def example(type: Any, samples: Mapping[str, Any] | None = None) -> Any:
    """A value that JSON for this type may have.

    `samples` are values for members by name; None leaves a member out that need not be there.
    """
    schema = msgspec.json.schema(type)
    return _ExampleMaker(schema.get("$defs", {}), samples or {}).value(schema, "", 0)


class _ExampleMaker:
    def __init__(self, known: Mapping[str, Any], samples: Mapping[str, Any]) -> None:
        self._known = known
        self._samples = samples

    def value(self, schema: dict[str, Any], name: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            return None
        if "$ref" in schema:
            return self.value(self._known[schema["$ref"].removeprefix(_REFERENCE)], name, depth + 1)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                kinds = [each for each in schema[several] if each.get("type") != "null"]
                return self.value(kinds[0], name, depth + 1) if kinds else None
        sample = self._samples.get(name)
        if sample is not None and _fits(sample, schema):
            return sample
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        return self._plain(schema, name, depth)

    def _plain(self, schema: dict[str, Any], name: str, depth: int) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                item = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
                return [self.value(item, "", depth + 1)] * max(1, schema.get("minItems", 1))
            case "integer" | "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
                return max(low, min(10, schema.get("maximum", 10)))
            case "boolean":
                return True
            case "string":
                return _text(schema, name)
        return {"body": "hello"} if not name else "hello"

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        members: dict[str, Any] = schema.get("properties", {})
        wanted = [name for name in members if self._samples.get(name, ...) is not None]
        shown = schema.get("required") or wanted[:MEMBERS_SHOWN]
        return {name: self.value(members[name], name, depth + 1) for name in shown}


def _fits(sample: Any, schema: dict[str, Any]) -> bool:
    """It is of the kind that the schema says, and one of the values if those are listed."""
    kinds = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}
    own = kinds[type(sample)]
    listed = schema.get("type", own)
    taken = listed if isinstance(listed, list) else [listed]
    fits = own in taken or (own == "integer" and "number" in taken)
    return fits and sample in schema.get("enum", [sample])


def _text(schema: dict[str, Any], name: str) -> str:
    """A text that the schema takes: one that goes with the name first."""
    fitting = "https://example.org/orders" if name.endswith("url") else "orders"
    pattern = schema.get("pattern", "")
    least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 20)
    for text in (fitting, *_TEXTS, "a" * least):
        if least <= len(text) <= most and re.search(pattern, text):
            return text
    return fitting


def curl(shell: Shell, method: str, path: str, header: str, body: Any = None) -> str:
    """The line to paste. What a path names are variables, as is the token in the header."""

    def variable(found: re.Match[str]) -> str:
        return f"${shell.names.get(found[1]) or _variable(found[1])}"

    address = f"${shell.base}" + re.sub(r"{(\w+)}", variable, path.removeprefix(shell.below))
    parts = ["curl"] if method == "GET" else ["curl", "-X", method]
    parts.append(f'"{address}"')
    if header:
        parts += ["-H", f'"{header}"']
    if body is not None:
        text = msgspec.json.encode(body).decode()
        parts += ["-H", '"Content-Type: application/json"', "-d", shlex.quote(text)]
    return " ".join(parts)


def _variable(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
