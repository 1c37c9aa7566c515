"""Forms are read as Python's own reader does it, and a piece at a time."""

import threading
import time
from urllib.parse import parse_qsl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from courier.dialects import forms

LONG = 4 << 20
# Others wait for some 10 ms of work, and for a tenth of a second when it is read at once.
CPU_S_MAX = 0.05

texts = st.text(st.sampled_from("ab+%4 1fFé=&;€"), max_size=40)


@given(texts, st.integers(3, 9))
@example("a=%", 3)
@example("a=%%41%4", 4)
@example("a=b&&c&=d", 3)
@example("a%3Db=%26", 5)
def test_a_form_is_read_as_usual_however_it_is_cut(text: str, piece: int) -> None:
    try:
        usual = parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(ValueError):
            forms.fields(text.encode(), fields_max=100, piece_bytes=piece)
    else:
        assert forms.fields(text.encode(), fields_max=100, piece_bytes=piece) == usual


def test_a_form_with_too_many_fields_is_refused() -> None:
    assert len(forms.fields(b"a=1&" * 4 + b"a=1", fields_max=5)) == 5
    with pytest.raises(ValueError):
        forms.fields(b"a=1&" * 5 + b"a=1", fields_max=5)


def test_a_long_form_that_is_read_on_a_thread_leaves_others_their_turn() -> None:
    """In CPU time of the process: how busy the machine is does not matter."""
    raw = b"a=" + b"%41" * (LONG // 3)
    waits = []
    for _ in range(3):
        thread = threading.Thread(target=forms.fields, args=(raw,), kwargs={"fields_max": 2})
        longest, last_s = 0.0, time.process_time()
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)
            now_s = time.process_time()
            longest, last_s = max(longest, now_s - last_s), now_s
        waits.append(longest)
    assert min(waits) < CPU_S_MAX, waits
