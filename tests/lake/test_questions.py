"""The questions in the documentation have answers."""

import re
from pathlib import Path

import pytest

from courier.lake import query
from tests.lake.lakes import SmallLake

PAGE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
# A question, and the answer as it was printed.
ASKED = re.findall(r"^```sql\n((?:(?!```)[^\n]*\n)+)```\n```\n(.*?)^```$", PAGE, re.M | re.S)


def test_there_are_ten() -> None:
    assert len(ASKED) == 10


@pytest.mark.parametrize(("sql", "printed"), ASKED, ids=range(1, len(ASKED) + 1))
def test_a_question_is_answered_in_the_columns_that_are_shown(
    small: SmallLake, sql: str, printed: str
) -> None:
    answer = query.ask(small.lake, sql, limit=100)
    assert [name.upper() for name in answer.columns] == printed.splitlines()[0].split()
