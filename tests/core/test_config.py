"""Settings: which source wins, and what is said about a value that cannot be used."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from courier import config
from courier.config import Config, ConfigError, Setting, Spec, described, has_password, load


def refusal(
    flags: Mapping[str, object] | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        load(flags or {}, file, environ or {})
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "courier.toml"


def test_without_any_source_every_setting_is_its_default() -> None:
    loaded = load({}, None, {})
    assert loaded == Config()
    assert set(loaded.sources.values()) == {"default"}


def test_every_default_is_a_value_the_setting_takes() -> None:
    for setting in config.settings():
        loaded = load({setting.name: setting.default}, None, {})
        assert getattr(loaded, setting.name) == setting.default


def test_file_wins_over_default_and_variable_over_file_and_flag_over_variable(file: Path) -> None:
    file.write_text("port = 1\nqueues_max = 1\nsweep_batch_max = 1")
    environ = {"COURIER_PORT": "2", "COURIER_QUEUES_MAX": "2"}
    loaded = load({"port": "3", "host": None}, file, environ)
    assert (loaded.port, loaded.queues_max, loaded.sweep_batch_max) == (3, 2, 1)
    assert loaded.host == "127.0.0.1"


def test_source_of_each_value_is_kept(file: Path) -> None:
    file.write_text("queues_max = 1")
    loaded = load({"port": "3"}, file, {"COURIER_LOG_LEVEL": "debug"})
    assert loaded.sources["queues_max"] == str(file)
    assert loaded.sources["log_level"] == "COURIER_LOG_LEVEL"
    assert loaded.sources["port"] == "--port"
    assert loaded.sources["host"] == "default"


def test_variables_of_the_process_are_read_when_none_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COURIER_PORT", "4")
    assert load({}).port == 4


def test_variables_of_other_programs_are_left_alone() -> None:
    assert load({}, None, {"PORT": "x", "COURIERS_PORT": "x"}) == Config()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("request_wait_ms_max", "1500", 1_500),
        ("request_wait_ms_max", "1_500", 1_500),
        ("request_wait_ms_max", "1500ms", 1_500),
        ("request_wait_ms_max", "15s", 15_000),
        ("request_wait_ms_max", "2m", 120_000),
        ("request_wait_ms_max", "1h", 3_600_000),
        ("journal_retention_ms", "30 d", 2_592_000_000),
        ("cache_bytes", "64MiB", 67_108_864),
        ("cache_bytes", "2GB", 2_000_000_000),
        ("request_bytes_max", "8192b", 8_192),
        ("request_bytes_max", "300kb", 300_000),
        ("request_bytes_max", "64KiB", 65_536),
        ("journal_bytes_max", "1tib", 1 << 40),
    ],
)
def test_times_and_sizes_may_carry_a_unit_in_every_source(
    file: Path, name: str, text: str, value: int
) -> None:
    file.write_text(f'{name} = "{text}"')
    assert getattr(load({}, file, {}), name) == value
    assert getattr(load({}, None, {f"COURIER_{name.upper()}": text}), name) == value
    assert getattr(load({name: text}, None, {}), name) == value


@pytest.mark.parametrize("text", ["true", "True", "yes", "on", "1"])
def test_a_switch_can_be_turned_on_by_word(text: str) -> None:
    assert load({}, None, {"COURIER_LOG_REQUESTS": text}).log_requests is True


@pytest.mark.parametrize("text", ["false", "no", "OFF", "0"])
def test_a_switch_can_be_turned_off_by_word(text: str) -> None:
    assert load({}, None, {"COURIER_LOG_REQUESTS": text}).log_requests is False


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_name(file: Path) -> None:
    file.write_text("prot = 1")
    assert refusal(file=file) == f"{file}: 'prot' names no setting; did you mean 'port'?"


def test_a_table_in_the_file_is_refused(file: Path) -> None:
    file.write_text("[server]\nport = 1")
    assert "'server' names no setting" in refusal(file=file)


def test_a_variable_that_names_no_setting_is_refused() -> None:
    message = refusal(environ={"COURIER_ZZZ": "1"})
    assert message == "COURIER_ZZZ: 'zzz' names no setting; `courier config` lists all of them"


def test_a_flag_that_names_no_setting_is_refused() -> None:
    assert "--sources: 'sources' names no setting" in refusal({"sources": "x"})


@pytest.mark.parametrize("text", ["70000", "-1", "x", "", "1.5", "7s", "0x10", "_1", "9" * 5_000])
def test_a_bad_number_is_refused_with_name_range_and_value(text: str) -> None:
    message = refusal(environ={"COURIER_PORT": text})
    expected = f"COURIER_PORT: port must be a whole number from 0 to 65535, not '{text}'"
    assert message == expected


@pytest.mark.parametrize("written", ["true", "1.0", "[1]", "1979-05-27", '"1 week"'])
def test_a_value_of_another_type_in_the_file_is_refused(file: Path, written: str) -> None:
    file.write_text(f"sweep_every_ms = {written}")
    assert "sweep_every_ms must be a whole number from 1 to 60000, not" in refusal(file=file)


@pytest.mark.parametrize("written", ["1", '"maybe"'])
def test_a_switch_that_is_neither_on_nor_off_is_refused(file: Path, written: str) -> None:
    file.write_text(f"log_requests = {written}")
    assert "log_requests must be true or false, not" in refusal(file=file)


def test_a_word_outside_the_choices_is_refused_with_the_choices() -> None:
    message = refusal({"store": "tape"})
    assert message == (
        "--store: store must be sqlite, memory or postgresql://USER:PASSWORD@HOST/NAME, not 'tape'"
    )


@pytest.mark.parametrize("name", ["host", "data", "store"])
@pytest.mark.parametrize("value", ["", "a\0b", 5])
def test_a_text_that_is_empty_or_no_text_is_refused(name: str, value: object) -> None:
    assert f"--{name}: {name} must be" in refusal({name: value})


@pytest.mark.parametrize(
    "value",
    ["x", "ftp://x", "http://", "http://x:port", "http://x?q", "http://u:p@x", "http://[", 7],
)
def test_a_public_url_that_clients_could_not_use_is_refused(value: object) -> None:
    message = refusal({"public_url": value})
    assert "public_url must be empty or an http:// or https:// address" in message


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    assert refusal(file=file) == f"cannot read {file}: No such file or directory"


@pytest.mark.parametrize("content", [b"port", b"port = 1\nport = 2", b"\xff = 1"])
def test_a_file_that_is_not_toml_is_named(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert f"{file} is not a TOML file" in refusal(file=file)


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:9"),
        ({"host": "example.org"}, "http://example.org:9"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:9"),
        ({"host": "::"}, "http://[::1]:9"),
        ({"public_url": "https://queues.example/q/"}, "https://queues.example/q"),
    ],
)
def test_clients_are_told_an_address_they_can_use(flags: dict[str, str], url: str) -> None:
    assert load(flags, None, {}).url(9) == url


def test_a_secret_is_masked_when_shown_and_in_refusals() -> None:
    setting = Setting("token", str, Spec("A secret.", secret=True), "")
    assert setting.shown("s3cret") == "********"
    assert setting.shown("") == ""
    with pytest.raises(ConfigError) as caught:
        setting.parse("s3cret\0", "COURIER_TOKEN")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@db.example:5432/courier",
        "postgresql://me@db.example:5432/courier?password=secret&schema=x",
    ],
)
def test_the_password_of_a_database_is_not_shown_and_no_flag(url: str) -> None:
    assert has_password(url)
    assert not has_password("postgresql://me@db.example:5432/courier?schema=x")
    config = load({"store": url})
    [shown] = [value for name, value, _, _ in described(config) if name == "store"]
    assert shown.startswith("postgresql://********@db.example:5432/courier")
    assert "secret" not in shown


def test_every_setting_has_help_and_numbers_have_a_range() -> None:
    for setting in config.settings():
        assert setting.spec.help.endswith("."), setting.name
        assert setting.kind is not int or setting.spec.low < setting.spec.high, setting.name
