"""Lakes of several journals in one folder, read as one lake: each row says which journal it is of.

A pipeline writes one of them, and each is a whole lake: its offsets, batches, gaps and audits are
those of its own journal, whatever happens to the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from courier.lake.catalog import Lake
from courier.lake.storage import filesystem
from courier.lake.tables import LakeError, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A question opens every table of each.
JOURNALS_MAX = 100


@dataclass(frozen=True)
class Lakes:
    """By the names of their folders, which are what their journals are called."""

    root: str
    journals: Mapping[str, Lake]


def each(lake: Lake | Lakes) -> Mapping[str, Lake]:
    """The lakes by their journals; one alone is of a journal that needs no name."""
    return lake.journals if isinstance(lake, Lakes) else {"": lake}


def tables(lake: Lake | Lakes) -> dict[str, dict[str, Table]]:
    """The tables that there are: by name, and each by the journals whose lakes have it."""
    found: dict[str, dict[str, Table]] = {}
    for journal, one in each(lake).items():
        for table in one.tables:
            if table.open() is not None:
                found.setdefault(table.name, {})[journal] = table
    return found


def read(spark: "SparkSession", lake: Lake | Lakes, name: str) -> "DataFrame":
    """The rows of a table; of several journals, each with the name of its own."""
    from pyspark.sql.functions import lit

    found = tables(lake).get(name)
    if found is None:
        raise LakeError(f"there is no table '{name}' in {lake.root} yet")
    rows = [
        table.read(spark).select(lit(journal).alias("journal"), "*")
        if journal
        else table.read(spark)
        for journal, table in found.items()
    ]
    return reduce(lambda some, more: some.unionByName(more), rows)


def opened(root: str) -> Lake | Lakes:
    """What can be read at a place. Raises LakeError for nothing, and for what is damaged."""
    lake = Lake(root)
    lake.check()
    if lake.events.open() is not None:
        return lake
    found = beneath(root)
    if not found:
        raise LakeError(f"there is no lake at {lake.root}: `courier pipeline run` makes one")
    known: dict[str, str] = {}
    for name, one in found.items():
        one.check()
        other = known.setdefault(one.events.epoch, name)
        if other != name:
            raise LakeError(
                f"'{other}' and '{name}' in {lake.root} are of the same journal, and its events "
                "would count twice: keep one of them elsewhere"
            )
    return Lakes(lake.root, found)


def alone(lake: Lake | Lakes) -> Lake:
    """The lake of one journal. Raises LakeError when there are several."""
    if isinstance(lake, Lakes):
        raise LakeError(several(lake.root, lake.journals))
    return lake


def several(root: str, names: Mapping[str, Lake]) -> str:
    """A sentence for what is about one journal only."""
    return (
        f"{root} has lakes of several journals ({', '.join(names)}): name the one that is meant, "
        f"as {root}/{next(iter(names))}"
    )


def beneath(root: str) -> dict[str, Lake]:
    """The lakes that lie in a folder, by their names."""
    system, place = filesystem(root)
    listed = system.get_file_info(pafs.FileSelector(place, allow_not_found=True))
    names = [info.base_name for info in listed if info.type == pafs.FileType.Directory]
    lakes = {name: Lake(f"{root.rstrip('/')}/{name}") for name in sorted(names)}
    found = {name: lake for name, lake in lakes.items() if lake.events.open() is not None}
    if len(found) > JOURNALS_MAX:
        raise LakeError(f"{root} has {len(found)} lakes, and {JOURNALS_MAX} are read as one")
    return found
