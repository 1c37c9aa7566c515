"""Names that are like one that does not exist."""

import random
import time

import pytest

from courier.console.troubles import COMPARED_MAX, nearest

# In proportion to the names it is below 0.03 s; letter by letter it is half a second.
CPU_S_MAX = 0.15
CHARACTERS = 127


def named(*names: str) -> list[tuple[str, str]]:
    return [(name, f"/{name}") for name in names]


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("shipmnts", "shipments"),
        ("ordres", "orders"),
        ("order", "Orders"),
        ("wob", "web"),
        ("orders-eu", "orders-us"),
        ("pay", "payments-of-yesterday"),
    ],
)
def test_a_name_that_is_like_it_is_found(ref: str, name: str) -> None:
    assert nearest(ref, named("snails", name, "zzz", "invoices")) == named(name)


def test_the_nearest_names_come_first() -> None:
    assert nearest("order", named("odrer", "orders", "ordre"))[0] == ("orders", "/orders")
    assert nearest("quite-another", named("orders", "web")) == []
    assert nearest("x" * 60_000, named("x", "y")) == []


@pytest.mark.parametrize("letters", ["ab", "abcdefghijklmnopqrstuvwxyz0123456789.-"])
def test_many_long_names_take_time_in_proportion(letters: str) -> None:
    chosen = random.Random(1)
    names = {"".join(chosen.choices(letters, k=CHARACTERS)) for _ in range(COMPARED_MAX)}
    ref = "".join(chosen.choices(letters, k=CHARACTERS))
    began_s = time.process_time()
    nearest(ref, named(*names))
    assert time.process_time() - began_s < CPU_S_MAX
