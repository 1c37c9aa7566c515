"""The names of the distribution: another program has `courier` on the package index."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import courier

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What somebody might paste: an installation of, or an extra of, that other program.
OTHERS = re.compile(
    r"(?:install|add|uvx?|pipx)\s+(?:-\S+\s+)*['\"`]?courier(?![\w-])|\bcourier\[\w+\]"
)


def texts() -> list[str]:
    """Files of the repository that somebody reads."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    endings = (".md", ".py", ".toml", ".sh", ".service", ".yaml", "Containerfile", "Makefile")
    own = f"tests/house/{Path(__file__).name}"
    return [name for name in listed if name.endswith(endings) and name != own]


def test_the_distribution_has_a_name_of_its_own() -> None:
    assert PROJECT["name"] == "courier-mq"
    assert PROJECT["version"] == courier.__version__
    assert list(PROJECT["scripts"]) == ["courier"]
    extras = [each for group in PROJECT["optional-dependencies"].values() for each in group]
    assert not [each for each in extras if each.startswith("courier[")]


def test_nobody_is_told_to_install_the_other_courier() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in texts()
        for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1)
        if OTHERS.search(line)
    ]
    assert not found


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("pip install courier", True),
        ("pip install 'courier[spark]'", True),
        ("pip install --upgrade courier", True),
        ("needs `courier[connect]`", True),
        ("pip install courier-mq", False),
        ("pip install 'courier-mq[spark]'", False),
        ("install courier.service", True),
    ],
)
def test_such_lines_are_recognised(line: str, other: bool) -> None:
    assert bool(OTHERS.search(line)) is other


def test_the_license_is_named_and_there() -> None:
    assert PROJECT["license"] == "MIT"
    [name] = PROJECT["license-files"]
    assert (ROOT / name).read_text().startswith("MIT License\n")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_pages_at_the_root_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target
