"""Every regular expression takes time in proportion to the text, however hostile that is.

Texts are made of the pattern's own parts: beginnings of what it matches, again and again, which is
what makes a pattern with two ways to match the same text try them all.
"""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _parser as parser
from typing import Any

import pytest

ROOT = Path(__file__).parents[2] / "src" / "courier"
TEXT_CHARACTERS = 16_000
# In proportion to the text it is well below 1 ms; by its square it is 20 ms and more.
CPU_S_MAX = 0.02
# Not of outside text: what the operator writes on the command line or in settings.
EXCEPT = {"lake": "questions of the one who waits for them, and our own files"}
WHOLE = ("match", "fullmatch")


def _patterns() -> Iterator[tuple[str, str, bool]]:
    """Module, name, and whether it is looked for at every place of a text."""
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] in EXCEPT:
            continue
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            if "re.compile(" in ast.unparse(node.value):
                name = node.targets[0].id
                used = {
                    each.attr
                    for each in ast.walk(tree)
                    if isinstance(each, ast.Attribute)
                    and isinstance(each.value, ast.Name)
                    and each.value.id == name
                }
                module = ".".join(("courier", *place.with_suffix("").parts))
                yield module.removesuffix(".__init__"), name, not used <= {*WHOLE}


def _example(parsed: Any) -> str:
    """Some text that the pattern matches, with repeated parts there once."""
    text = ""
    for code, value in parsed:
        kind = str(code)
        if kind == "LITERAL":
            text += chr(value)
        elif kind == "IN":
            text += _member(value)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            text += _example(value[2]) * max(1, value[0])
        elif kind == "SUBPATTERN":
            text += _example(value[3])
        elif kind == "ATOMIC_GROUP":
            text += _example(value)
        elif kind == "BRANCH":
            text += _example(value[1][0])
        elif kind in ("ANY", "NOT_LITERAL"):
            text += "a"
    return text


def _member(options: Any) -> str:
    """A character of a class, one that other parts may match as well if there is."""
    for character in "a0 ;-.:/=":
        code = [(parser.IN, options)]
        found = parser.SubPattern(parser.State(), code)
        if re._compiler.compile(found).fullmatch(character):  # type: ignore[attr-defined]
            return character
    first = options[0][1]
    return chr(first[0] if isinstance(first, tuple) else first)


def _hostile(example: str) -> Iterator[str]:
    beginnings = [example[:length] for length in range(1, min(len(example), 40) + 1)]
    for beginning in beginnings:
        yield beginning * (TEXT_CHARACTERS // len(beginning))
    for beginning in ("", *beginnings):
        for character in {*example[-3:], *" a0;"}:
            yield beginning + character * TEXT_CHARACTERS
    half = TEXT_CHARACTERS // 2
    yield from (each * (half // len(each)) + character * half
                for each in beginnings for character in {*example[-3:], *" a0;"})  # fmt: skip


def _cpu_s(pattern: "re.Pattern[Any]", text: str, *, anywhere: bool) -> float:
    given: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    begun_s = time.process_time()
    (pattern.search if anywhere else pattern.fullmatch)(given)
    return time.process_time() - begun_s


def slowest(pattern: "re.Pattern[Any]", *, anywhere: bool) -> tuple[float, str]:
    source = pattern.pattern
    parsed = parser.parse(source if isinstance(source, str) else source.decode("latin-1"))
    worst = (0.0, "")
    for text in _hostile(_example(parsed) or "a"):
        for each in (text, text + "\x00", text + "\n\x00"):
            cpu_s = _cpu_s(pattern, each, anywhere=anywhere)
            if cpu_s > CPU_S_MAX:  # once more: the machine may have been busy
                cpu_s = min(cpu_s, _cpu_s(pattern, each, anywhere=anywhere))
            worst = max(worst, (cpu_s, each[:60]))
            if cpu_s > CPU_S_MAX:
                return worst
    return worst


@pytest.mark.parametrize(("module", "name", "anywhere"), [*_patterns()])
def test_a_pattern_takes_time_in_proportion_to_the_text(
    module: str, name: str, anywhere: bool
) -> None:
    cpu_s, text = slowest(getattr(importlib.import_module(module), name), anywhere=anywhere)
    assert cpu_s < CPU_S_MAX, f"{cpu_s:.3f} s for {text!r}..."


@pytest.mark.parametrize("pattern", [r'content-disposition:[^\r\n]*;\s*name="?(\w+)"?', r"\s*x"])
def test_the_check_sees(pattern: str) -> None:
    assert slowest(re.compile(pattern), anywhere=True)[0] > CPU_S_MAX
