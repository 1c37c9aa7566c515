"""Passwords in addresses: no setting that can hold one shows it, whatever its spelling."""

import logging
import sys
from pathlib import Path

import pytest

from courier import config
from courier.cli.main import main
from courier.config import ConfigError
from courier.delivery.places import BadPlaces, urls
from courier.masking import masked, scrubbed
from courier.requester import BadAddress, Requester
from courier.telemetry import set_up_logs

WORD = "sesame"
ADDRESSES = [
    f"http://me:{WORD}@h.example/x",
    f"https://{WORD}@h.example",
    f"http://me:pw/{WORD}@h.example",
    f"http://me:pw?{WORD}@h.example",
    f"http://me:pw#{WORD}@h.example",
    f"http://me:{WORD}",
    f"HTTP://me:{WORD}@[::1",
    f"postgresql://me:{WORD}@h.example/db",
    f"postgresql://me:pw@{WORD}@h.example/db",
    f"postgresql://me:pw/{WORD}@h.example/db",
    f"postgresql://me:pw@x/{WORD}@h.example/db",
    f"postgresql://me:pw?{WORD}@h.example/db",
    f"postgresql://h.example/db?password={WORD}",
    f"postgresql://h.example/db?password=x@{WORD}",
    f"postgresql://me:{WORD}@one.example:5432,two.example:5432/db",
    f"postgres://me:{WORD}@h.example/db",
    f"postgresql:me:{WORD}@h.example",
    f"host=h.example password={WORD}",
    f"me:{WORD}@h.example",
    f"billing=http://me:{WORD}@h.example/x",
    f"billing=http://h.example/x?token={WORD}",
    f"billing=http://h.example/x#{WORD}",
    f"one=http://h.example,two=http://me:{WORD}@h.example/x",
    f"one=http://me:pw,{WORD}@h.example/x",
    f"http://me:{WORD}@h.example/x\n",
]
HIDING = [each for each in config.settings() if each.spec.secret or each.spec.addresses]


def test_every_setting_that_can_hold_a_password_is_declared() -> None:
    """By its name or its meaning; a new one that is neither fails here."""
    names = {each.name for each in HIDING}
    assert {"store", "public_url", "worker_urls", "encryption_keys"} <= names
    words = ("url", "password", "secret", "token", "keys", "store")
    for setting in config.settings():
        said = {*setting.name.split("_"), *setting.spec.help.lower().replace(",", " ").split()}
        if setting.kind is str and said & {*words} and setting.name != "tls_key":
            assert setting.name in names, setting.name


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("setting", HIDING, ids=lambda each: each.name)
def test_no_setting_shows_a_password(
    setting: config.Setting,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variable = f"COURIER_{setting.name.upper()}"
    monkeypatch.setenv(variable, address)
    main(["config"])
    main(["config", "--json"])
    shown = capsys.readouterr()
    said = shown.out + shown.err + setting.shown(address)
    for value in (address, [address], {"url": address}):
        try:
            loaded = config.load({setting.name: value}, None, {})
        except ConfigError as error:
            said += str(error)
        else:
            said += repr(loaded) + str(loaded) + repr(config.described(loaded))
    assert WORD not in said
    if setting.name == "worker_urls":
        try:
            urls(address, tenant="default")
        except BadPlaces as error:
            assert WORD not in str(error)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_command_shows_the_password_of_its_address(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", str(tmp_path), "--url", address, "--token", "x"]
    # An address without a password leads to no server here.
    assert main(["queue", "list", *flags]) in (1, 2, 3)
    shown = capsys.readouterr()
    assert WORD not in shown.out + shown.err
    try:
        Requester(address)
    except BadAddress as error:
        assert WORD not in str(error)


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_log_line_shows_a_password(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:], logging.getLogger().level
    set_up_logs(level="info", format=form)
    try:
        try:
            raise OSError(f"no route to postgresql://me:{WORD}@h.example/db")
        except OSError:
            logging.getLogger("courier").exception(
                "failed", extra={"url": f"http://me:{WORD}@h.example/x"}
            )
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = before
    said = capsys.readouterr().err
    assert "h.example" in said and WORD not in said


def test_what_holds_no_password_is_shown_as_it_is() -> None:
    for text in (
        "sqlite",
        "tape",
        "https://queues.example/q/",
        "localhost:8787",
        "billing=http://h.example/x,mail/send=http://[::1]:9/",
        "postgresql://one.example:5432,two.example/db",
    ):
        assert masked(text) == text
    assert scrubbed("me@h.example asked http://h.example/x") == (
        "me@h.example asked http://h.example/x"
    )
    sys.stdout.flush()
