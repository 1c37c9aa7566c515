"""Digests tell rows from others, and nothing else."""

from itertools import combinations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from courier.core.types import Draft
from courier.ops.digests import DIGEST_BYTES, digests
from courier.ops.drafts import read

DRAFTS = st.lists(
    st.builds(
        Draft,
        body=st.binary(max_size=3),
        content_type=st.sampled_from(("text", "json", "bytes")),
        headers=st.sampled_from((None, {}, {"a": "b"}, {"a": "b", "c": "d"}, {"ab": ""})),
        id=st.sampled_from((None, "a", "b")),
        delay_ms=st.sampled_from((None, 0, 1)),
        group=st.sampled_from((None, "a", "b")),
    ),
    max_size=4,
)


@given(DRAFTS, st.integers(0, 4))
def test_it_does_not_matter_how_rows_are_divided(drafts: list[Draft], place: int) -> None:
    whole = digests(drafts, b"")
    first = digests(drafts[:place], b"")
    assert first + digests(drafts[place:], first[-1])[1:] == whole
    assert {len(digest) for digest in whole[1:]} <= {DIGEST_BYTES}


@given(DRAFTS, DRAFTS)
def test_other_rows_have_another_digest(left: list[Draft], right: list[Draft]) -> None:
    assert (digests(left, b"")[-1] == digests(right, b"")[-1]) == (left == right)


def test_everything_that_a_row_says_counts() -> None:
    rows = [
        Draft(b"a"),
        Draft(b"b"),
        Draft(b"a", "json"),
        Draft(b"a", headers={}),
        Draft(b"a", headers={"k": 1}),
        Draft(b"a", headers={"k": "1"}),
        Draft(b"a", headers={"k": [1, None]}),
        Draft(b"a", id="x"),
        Draft(b"a", group="x"),
        Draft(b"a", delay_ms=0),
        Draft(b"a", delay_ms=1),
    ]
    for one, other in combinations(rows, 2):
        assert digests([one], b"") != digests([other], b"")


def test_headers_have_no_order_and_what_wrote_them_leaves_no_trace() -> None:
    def told(**columns: pa.Array) -> bytes:
        batch = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return digests(read(sink.getvalue().to_pybytes(), None), b"")[-1]

    kind = pa.map_(pa.string(), pa.string())
    plain = pa.array(["x"])
    ways = [
        told(body=plain, headers=pa.array([[("a", "1"), ("b", "2")]], kind)),
        told(body=plain, headers=pa.array([[("b", "2"), ("a", "1")]], kind)),
        told(body=plain, headers=pa.array(['{"b": "2",  "a": "1"}'])),
        told(
            body=pa.array([b"x"], pa.large_binary()),
            content_type=pa.array(["text"]),
            headers=pa.array(['{"a":"1","b":"2"}']),
            group=pa.nulls(1, pa.string()),
        ),
    ]
    assert len(set(ways)) == 1


def test_the_last_row_is_another_than_one_that_is_followed() -> None:
    drafts = [Draft(b"a"), Draft(b"b")]
    plain, ended = digests(drafts, b""), digests(drafts, b"", last=True)
    assert plain[:-1] == ended[:-1] and plain[-1] != ended[-1]
    assert digests([], plain[-1], last=True) == [plain[-1]]


def test_with_a_key_they_are_others() -> None:
    drafts = [Draft(b"a"), Draft(b"b")]
    found = {digests(drafts, b"", key=key)[-1] for key in (b"", b"one", b"two")}
    assert len(found) == 3
