"""The names of the distribution: another program has `courier` on the package index."""

import re
import runpy
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


# Words and phrases that style asks us not to use, with what we write instead.
UNUSED_WORDS = {
    "whoever": "a caller that; a process that",
    "whosoever": "a caller that",
    "so many": "the limit, by its name",
    "none such": "no such",
    "anew": "again; rebuild; restart",
}


@pytest.mark.parametrize("word", UNUSED_WORDS)
def test_words_that_we_do_not_use(word: str) -> None:
    seen = re.compile(rf"\b{word}\b", re.IGNORECASE)
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in [*texts(), "Makefile"]
        if not name.startswith(("tests/", "bench/"))
        for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1)
        if seen.search(line)
    ]
    assert not found, f"write instead: {UNUSED_WORDS[word]}"


def test_a_class_name_stands_once_in_the_source() -> None:
    classes = runpy.run_path(str(ROOT / "scripts" / "size.py"))["classes"]()
    assert {name: where for name, where in classes.items() if len(where) > 1} == {}


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, place in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        if place and found.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            assert place[1:] in [_anchor(head) for head in heads], f"{target}{place}"


def _anchor(head: str) -> str:
    """As pages that show Markdown name a heading."""
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


def test_every_release_says_how_to_upgrade_to_it() -> None:
    first, *releases = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert first.startswith("Unreleased\n")
    assert any(
        re.match(rf"{re.escape(courier.__version__)} - \d{{4}}-\d\d-\d\d\n", r) for r in releases
    )
    for each in (first, *releases):
        assert "\n\n### Upgrading\n\n" in each, each.partition("\n")[0]
