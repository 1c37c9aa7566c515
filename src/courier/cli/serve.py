"""`serve`, `init` and `config`: the commands that read settings."""

import argparse
import gc
from pathlib import Path

from courier import config
from courier.cli import output
from courier.cli.parser import Commands, command


def add(commands: Commands) -> None:
    add_settings(command(commands, "serve", "run the server", _serve))
    add_settings(
        command(
            commands,
            "init",
            "create the first tenant of a shared database",
            _init,
        )
    )
    shown = command(commands, "config", "show each setting and where its value comes from", _config)
    output.add_json(shown)
    add_settings(shown)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting. Values stay text here; `config` reads them like any source.

    Those that hold secrets have none: everyone on the machine can see the flags of a process.
    """
    parser.usage = f"{parser.prog} [OPTION ...] [--SETTING VALUE ...]"
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    group = parser.add_argument_group("settings")
    for setting in config.settings():
        if setting.spec.secret:
            group.add_argument(setting.flag, action=_Refuse, help=argparse.SUPPRESS)
            continue
        text = f"{setting.spec.help} Default: {setting.shown(setting.default) or 'empty'}."
        if setting.kind is bool:
            action = argparse.BooleanOptionalAction
            group.add_argument(setting.flag, action=action, default=None, help=text)
        else:
            values = f" One of {setting.values}." if setting.spec.choices else ""
            metavar = {int: "N", Path: "DIR"}.get(setting.kind, "TEXT")
            group.add_argument(setting.flag, metavar=metavar, help=text + values)


class _Refuse(argparse.Action):
    """A flag that must not be used, and whose value is not repeated."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        variable = f"COURIER_{self.dest.upper()}"
        parser.error(
            f"everyone on this machine can see flags: set {self.dest} in a file, "
            f"or the variable {variable}"
        )


def given(args: argparse.Namespace) -> list[str]:
    """The flags of settings as they were given, for another process."""
    flags = [] if args.config is None else ["--config", str(args.config)]
    for setting in config.settings():
        value = getattr(args, setting.name)
        if isinstance(value, bool):
            flags.append(setting.flag if value else setting.flag.replace("--", "--no-", 1))
        elif value is not None:
            flags.append(f"{setting.flag}={value}")
    return flags


def load(args: argparse.Namespace) -> config.Config:
    if config.has_password(args.store or ""):
        raise config.ConfigError(
            "everyone on this machine can see flags: leave the password out of --store, and set "
            "the variable PGPASSWORD, or store in a file"
        )
    flags = {setting.name: getattr(args, setting.name) for setting in config.settings()}
    return config.load(flags, args.config)


def _serve(args: argparse.Namespace) -> None:
    settings = load(args)
    # Loading makes very many objects and drops few: a tenth of the time would go into looking for
    # those. The server turns the collector on again before it serves.
    gc.disable()
    # Here, so that the other commands start without loading the server.
    from courier.app import serve

    serve(settings)


def _init(args: argparse.Namespace) -> None:
    settings = load(args)
    if not config.is_database(settings.store):
        raise config.ConfigError(
            "only servers that share a database need init: courier serve does the rest"
        )
    from courier.app import initialize

    output.print_json(initialize(settings))


def _config(args: argparse.Namespace) -> None:
    loaded = load(args)
    rows = []
    for setting in config.settings():
        value = getattr(loaded, setting.name)
        if setting.kind not in (int, bool) or not args.json:
            value = setting.shown(value)
        rows.append([setting.name, value, loaded.sources[setting.name]])
    if args.json:
        output.print_json({name: {"value": v, "source": source} for name, v, source in rows})
    else:
        output.table(["setting", "value", "source"], rows)
