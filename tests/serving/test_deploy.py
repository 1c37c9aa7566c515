"""The files in deploy/: what they start does start, and their settings are known."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import yaml

from courier import config
from tests.server import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SETTINGS = {f"COURIER_{setting.name.upper()}" for setting in config.settings()}
START_S_MAX = 60.0
DRAIN_S = config.Config().drain_wait_ms_max / 1000


def instructions() -> list[tuple[str, str]]:
    """Those of the container file, each with its arguments."""
    lines = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    found = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return [(word, rest) for word, rest in found]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def environment() -> dict[str, str]:
    pairs = [rest.split("=", 1) for word, rest in instructions() if word == "ENV"]
    return {name: value for name, value in pairs if name != "PATH"}


def test_the_image_has_all_that_the_package_is_built_of() -> None:
    copied = " ".join(rest for word, rest in instructions() if word == "COPY").split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "src", project["readme"], *project["license-files"]}
    assert needed <= set(copied)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in needed} <= set(sent), "and they are sent to the builder"
    assert all((ROOT / name).exists() for name in needed)


def test_the_image_is_of_a_python_that_we_support_and_runs_as_nobody_special() -> None:
    images = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["requires-python"].removeprefix(">=")
    assert {image.removeprefix("python:").removesuffix("-slim") for image in images} == {wanted}
    assert f"--uid {last('USER')} " in last("RUN")
    assert environment().keys() <= SETTINGS


def test_the_container_file_is_sound() -> None:
    tool = Path(sys.executable).with_name("hadolint")
    flags = ["--no-color", "--failure-threshold", "style"]
    checked = [str(tool), *flags, str(DEPLOY / "Containerfile")]
    ran = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_what_the_image_starts_is_ready_and_stops(tmp_path: Path) -> None:
    """Its own command, environment and health check, with other paths and another port."""
    command = json.loads(last("ENTRYPOINT")) + json.loads(last("CMD"))
    assert command == ["courier", "serve"]
    port, given = str(free_port()), environment()
    assert given["COURIER_DATA"] == last("VOLUME") == last("WORKDIR")
    env = {**os.environ, **given, "COURIER_DATA": str(tmp_path / "data"), "COURIER_PORT": port}
    words = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    check = [sys.executable, *(word.replace(last("EXPOSE"), port) for word in words[1:])]

    def healthy() -> bool:
        return subprocess.run(check, check=False, capture_output=True, timeout=30).returncode == 0

    with (tmp_path / "out").open("wb") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", *command], env=env, stdout=out, stderr=out
        )
    try:
        until_s = time.monotonic() + START_S_MAX
        while not healthy():
            assert running.poll() is None and time.monotonic() < until_s
    finally:
        running.terminate()
        status = running.wait(60)
    assert status == 0
    assert not healthy(), "the health check sees that it is gone"


def test_the_composition_fits_the_image() -> None:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = composed["services"]["courier"]
    built = service["build"]
    assert (DEPLOY / built["context"] / built["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    assert service["environment"].keys() <= SETTINGS
    [volume] = service["volumes"]
    name, _, place = volume.partition(":")
    assert place == last("VOLUME") and name in composed["volumes"]
    [port] = service["ports"]
    assert port.endswith(f":{last('EXPOSE')}") and port.startswith("127.0.0.1:")
    assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN_S


def test_the_unit_is_sound(tmp_path: Path) -> None:
    text = (DEPLOY / "courier.service").read_text()
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *words = unit["Service"]["ExecStart"].split()
    assert words == ["serve", "--data", f"/var/lib/{unit['Service']['StateDirectory']}"]
    assert int(unit["Service"]["TimeoutStopSec"]) > DRAIN_S
    # systemd looks for the program, which is not installed there on this machine.
    checked = tmp_path / "courier.service"
    checked.write_text(re.sub(re.escape(program), shutil.which("true") or "/bin/true", text))
    tool = shutil.which("systemd-analyze")
    assert tool, "systemd-analyze is not installed"
    ran = subprocess.run([tool, "verify", checked], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
