"""Ids and secrets in the many forms in which clients send them."""

import base64
import re

import msgspec

from courier.dialects import forms, json
from courier.web import NotJson, Request

PARTS_MAX = 20
FIELDS_MAX = 100
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)


class GivenCredentials(msgspec.Struct):
    """What a token is asked for with; as JSON, as a form, or in the Authorization header."""

    client_id: str | msgspec.UnsetType | None = msgspec.UNSET
    client_secret: str | msgspec.UnsetType | None = msgspec.UNSET
    grant_type: str | msgspec.UnsetType | None = msgspec.UNSET
    username: str | msgspec.UnsetType | None = msgspec.UNSET
    password: str | msgspec.UnsetType | None = msgspec.UNSET


def decode(raw: bytes, request: Request) -> GivenCredentials:
    """Whatever the content type says: clients are careless about it."""
    kind = request.header(b"content-type")
    if kind.lower().startswith("multipart/form-data"):
        return _credentials(_multipart(raw, kind))
    if raw.lstrip()[:1] == b"{":
        decoded: GivenCredentials = json.decode(raw, GivenCredentials)
        return decoded
    try:
        return _credentials(dict(forms.fields(raw, fields_max=FIELDS_MAX)))
    except ValueError as error:
        raise NotJson(f"the body is neither JSON nor a form: {error}") from error


def _multipart(raw: bytes, kind: str) -> dict[str, str]:
    """The fields of a form. Parts within parts are none of ours, and are not looked into."""
    boundary = _BOUNDARY.search(kind)
    if boundary is None:
        raise NotJson("the form does not say what separates its parts")
    separator = b"--" + (boundary[1] or boundary[2]).encode("latin-1")
    fields: dict[str, str] = {}
    for part in raw.split(separator, PARTS_MAX)[1:PARTS_MAX]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = _field_name(head.decode("latin-1"))
        if name:
            fields[name] = value.removesuffix(b"\r\n").decode(errors="replace")
    return fields


def _field_name(head: str) -> str:
    """What a part of a form is called, "" for nothing."""
    for line in head.split("\r\n"):
        field, _, rest = line.partition(":")
        for parameter in rest.split(";") if field.strip().lower() == "content-disposition" else ():
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "name":
                return value.strip().strip('"')
    return ""


def _credentials(fields: dict[str, str]) -> GivenCredentials:
    known = GivenCredentials.__struct_fields__
    return GivenCredentials(**{name: value for name, value in fields.items() if name in known})


def basic(request: Request) -> tuple[str, str]:
    scheme, _, text = request.header(b"authorization").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        id, _, secret = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return id, secret
