"""Commands as tables: their arguments, and of those that are one request its route and columns."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from courier.cli import output
from courier.cli.asking import add_asking, is_sure
from courier.cli.client import ApiClient, segment
from courier.cli.credentials import access, add_access
from courier.cli.errors import Failed
from courier.cli.parser import Commands, command, group
from courier.cli.watching import add_watch, watched


class Argument(Struct, frozen=True):
    """As argparse takes it. `member` is its name in the body of the request; "" is not sent.

    Of those with the same `either` one may be given; those with the same `under` have that title
    and description in the help.
    """

    words: tuple[str, ...]
    options: dict[str, Any]
    member: str = ""
    either: str = ""
    under: tuple[str, str] | None = None


def argument(
    *words: str,
    member: str = "",
    either: str = "",
    under: tuple[str, str] | None = None,
    **options: Any,
) -> Argument:
    return Argument(words, options, member, either, under)


def as_json(either: str = "") -> Argument:
    """For a command that prints JSON or something else again."""
    return argument("--json", action="store_true", help=output.JSON_HELP, either=either)


class Verb(Struct, frozen=True, kw_only=True):
    """One command: a request, or whatever `run` does. `place` adds the flags that say where.

    `route` is "METHOD /path", of the operator's routes or with /console before it of the console's,
    with the arguments in braces. `reads` makes of the answer what is shown, and `member` is a part
    of it: as a table of `columns`, or by `show`, or as it is; `said` is printed in its place. What
    `deletes` names is asked for first. Where `failed` says why, the command fails after all.
    """

    help: str
    route: str = ""
    run: Callable[[argparse.Namespace], None] | None = None
    takes: Sequence[Argument] = ()
    body: Mapping[str, Any] | None = None
    member: str = ""
    columns: Sequence[str] = ()
    said: str = ""
    reads: Callable[[Any], Any] | None = None
    show: Callable[[Any], None] | None = None
    failed: Callable[[Any], str] | None = None
    deletes: Callable[[ApiClient, argparse.Namespace], str] | None = None
    resolve: Callable[[ApiClient, argparse.Namespace], None] | None = None
    watch: bool = False
    asks: bool = False
    json: bool = True
    place: Callable[[argparse.ArgumentParser], None] | None = add_access


def add(commands: Commands, name: str, help: str, verbs: Mapping[str, Verb]) -> Commands:
    """Declare the commands of one resource."""
    declared = group(commands, name, help)
    declare(declared, verbs)
    return declared


def declare(commands: Commands, verbs: Mapping[str, Verb]) -> None:
    for word, verb in verbs.items():
        parser = command(commands, word, verb.help, verb.run or _runner(verb))
        places: dict[object, argparse._ActionsContainer] = {}
        for each in verb.takes:
            key = each.under or each.either
            if each.under and key not in places:
                places[key] = parser.add_argument_group(*each.under)
            elif each.either and key not in places:
                places[key] = parser.add_mutually_exclusive_group()
            places.get(key, parser).add_argument(*each.words, **each.options)
        if verb.watch:
            add_watch(parser)
        if verb.deletes or verb.asks:
            add_asking(parser)
        if verb.json and not verb.said and not verb.deletes:
            output.add_json(parser)
        if verb.place:
            verb.place(parser)


def _runner(verb: Verb) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        client = ApiClient(access(args))
        if verb.resolve:
            verb.resolve(client, args)
        what = verb.deletes(client, args) if verb.deletes else ""
        named = getattr(args, verb.takes[0].words[0], "") if verb.deletes else ""
        if what and not is_sure(args, named, what):
            return
        watched(getattr(args, "watch", None), lambda: _once(verb, client, args, what))

    return run


def _once(verb: Verb, client: ApiClient, args: argparse.Namespace, what: str) -> None:
    method, path = verb.route.split(" ", 1)
    values = {**vars(args), "tenant": client.tenant}
    named = {name: segment(str(value)) for name, value in values.items() if value is not None}
    path = path.format_map(named)
    ask = client.console if path.startswith("/console/") else client.operate
    answer = ask(method, path.removeprefix("/console"), _body(verb, args))
    answer = verb.reads(answer) if verb.reads else answer
    shown = answer[verb.member] if verb.member else answer
    if what:
        print(f"deleted {what}")
    elif verb.said:
        print(verb.said.format_map({**vars(args), "answer": answer}))
    elif getattr(args, "json", False):
        output.print_json(shown if verb.columns else answer)
    elif verb.columns:
        output.table(verb.columns, [_cells(verb.columns, row) for row in shown])
    elif verb.show:
        verb.show(answer)
    else:
        print(shown)
    if verb.failed and (why := verb.failed(answer)):
        raise Failed(why)


def _body(verb: Verb, args: argparse.Namespace) -> dict[str, Any] | None:
    """What the flags say, without what was not given; None if the verb sends nothing."""
    members = {each.member: getattr(args, _dest(each)) for each in verb.takes if each.member}
    given = {name: each for name, each in members.items() if each is not None and each is not False}
    return {**(verb.body or {}), **given} if members or verb.body is not None else None


def _dest(each: Argument) -> str:
    plain: str = each.options.get("dest", each.words[-1].lstrip("-").replace("-", "_"))
    return plain


def _cells(columns: Sequence[str], row: Mapping[str, Any]) -> list[object]:
    """A column that the row has as a time is shown as one."""
    return [
        output.age(row[f"{name}_ms"]) if f"{name}_ms" in row else row.get(name) for name in columns
    ]
