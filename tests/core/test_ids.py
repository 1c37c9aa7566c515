import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from courier import ids
from courier.ids import Tokens

QUEUE = "c0" + "12" * 15
OTHER_QUEUE = "c0" + "34" * 15
SECRET = b"s" * 32
NOW_MS = 1_700_000_000_000

SEQS = st.integers(1, 2**ids.SEQ_BITS - 1)
TIMES = st.integers(0, 2**44 - 1)
ATTEMPTS = st.integers(1, 2**24 - 1)


def test_an_id_is_32_hex_digits_and_never_the_same() -> None:
    made = {ids.new_id() for _ in range(100)}
    assert len(made) == 100
    for id in made:
        assert len(id) == 32
        assert id.startswith("c0")
        assert id == id.lower()
        int(id, 16)


def test_secrets_are_long_and_never_the_same() -> None:
    made = {ids.new_secret("co_") for _ in range(100)}
    assert len(made) == 100
    assert all(secret.startswith("co_") and len(secret) >= 40 for secret in made)
    assert len(ids.new_bytes(32)) == 32
    assert ids.new_bytes(32) != ids.new_bytes(32)


def test_a_digest_is_repeatable_and_does_not_show_the_secret() -> None:
    assert ids.digest("opensesame") == ids.digest("opensesame")
    assert ids.digest("opensesame") != ids.digest("opensesamf")
    assert "opensesame" not in ids.digest("opensesame")


def test_secrets_are_compared_whole() -> None:
    assert ids.same("größe", "größe")
    assert not ids.same("secret", "secre")
    assert not ids.same("secret", "Secret")
    assert not ids.same("", "x")


# --- message ids ---


@given(seq=SEQS, published_ms=TIMES)
def test_a_message_id_leads_back_to_its_sequence(seq: int, published_ms: int) -> None:
    id = ids.message_id(published_ms=published_ms, seq=seq, queue=QUEUE)
    assert len(id) == 32
    assert id.startswith("c0")
    assert ids.message_seq(id, queue=QUEUE) == seq


@given(first=st.tuples(TIMES, SEQS), second=st.tuples(TIMES, SEQS))
def test_message_ids_sort_by_time_then_by_sequence(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    first_id, second_id = (
        ids.message_id(published_ms=published_ms, seq=seq, queue=QUEUE)
        for published_ms, seq in (first, second)
    )
    assert (first_id < second_id) == (first < second)


def test_a_message_id_means_nothing_on_another_queue() -> None:
    id = ids.message_id(published_ms=NOW_MS, seq=7, queue=QUEUE)
    assert id != ids.message_id(published_ms=NOW_MS, seq=7, queue=OTHER_QUEUE)
    assert ids.message_seq(id, queue=OTHER_QUEUE) is None


@pytest.mark.parametrize(
    "id",
    ["", "c0", "order-1", "c0" + "z" * 30, "c1" + "0" * 30, "c0" + "0" * 31, "c0" + "ü" * 30],
)
def test_what_is_no_message_id_has_no_sequence(id: str) -> None:
    assert ids.message_seq(id, queue=QUEUE) is None


@given(st.text(max_size=40))
def test_no_text_upsets_the_reading_of_a_message_id(text: str) -> None:
    assert ids.message_seq(text, queue=QUEUE) is None
    seq = ids.message_seq("c0" + text[:30], queue=QUEUE)
    assert seq is None or 0 <= seq < 2**ids.SEQ_BITS


# --- tokens ---


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(SECRET, "lease")


@given(seq=SEQS, attempt=ATTEMPTS)
def test_a_token_reads_back_in_its_place(seq: int, attempt: int) -> None:
    tokens = Tokens(SECRET, "lease")
    assert tokens.read(QUEUE, tokens.mint(QUEUE, seq, attempt)) == (seq, attempt)


def test_a_token_survives_a_restart(tokens: Tokens) -> None:
    token = tokens.mint(QUEUE, 7, 2)
    assert Tokens(SECRET, "lease").read(QUEUE, token) == (7, 2)


def test_every_attempt_has_its_own_token(tokens: Tokens) -> None:
    made = {tokens.mint(QUEUE, seq, attempt) for seq in range(1, 9) for attempt in range(1, 9)}
    assert len(made) == 64


def test_a_token_does_not_read_in_another_place(tokens: Tokens) -> None:
    token = tokens.mint(QUEUE, 7, 2)
    assert tokens.read(OTHER_QUEUE, token) is None
    assert tokens.read("", token) is None
    assert tokens.read(QUEUE, token) == (7, 2)


def test_a_token_does_not_read_for_another_purpose_or_secret(tokens: Tokens) -> None:
    token = tokens.mint(QUEUE, 7, 2)
    assert Tokens(SECRET, "peek").read(QUEUE, token) is None
    assert Tokens(b"t" * 32, "lease").read(QUEUE, token) is None


def test_places_do_not_mix_when_they_take_turns(tokens: Tokens) -> None:
    here, there = tokens.mint(QUEUE, 1, 1), tokens.mint(OTHER_QUEUE, 1, 1)
    for _ in range(2):
        assert tokens.read(QUEUE, here) == (1, 1)
        assert tokens.read(OTHER_QUEUE, there) == (1, 1)
        assert tokens.read(QUEUE, there) is None
        assert tokens.read(OTHER_QUEUE, here) is None


def test_a_token_with_any_bit_changed_does_not_read(tokens: Tokens) -> None:
    raw = base64.urlsafe_b64decode(tokens.mint(QUEUE, 7, 2))
    for bit in range(len(raw) * 8):
        forged = bytearray(raw)
        forged[bit // 8] ^= 1 << bit % 8
        token = base64.urlsafe_b64encode(bytes(forged)).decode()
        assert tokens.read(QUEUE, token) is None


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 23])
def test_a_token_cut_short_does_not_read(tokens: Tokens, cut: int) -> None:
    token = tokens.mint(QUEUE, 7, 2)
    assert tokens.read(QUEUE, token[:-cut]) is None
    assert tokens.read(QUEUE, token[cut:]) is None


@pytest.mark.parametrize("extra", ["A", "AAAA", " ", "\n", "\0", "é"])
def test_a_token_with_something_added_does_not_read(tokens: Tokens, extra: str) -> None:
    token = tokens.mint(QUEUE, 7, 2)
    assert tokens.read(QUEUE, token + extra) is None
    assert tokens.read(QUEUE, extra + token) is None


@given(st.text())
def test_no_text_upsets_the_reading_of_a_token(text: str) -> None:
    assert Tokens(SECRET, "lease").read(QUEUE, text) is None


@given(st.binary(min_size=18, max_size=18))
def test_a_token_cannot_be_made_up(raw: bytes) -> None:
    token = base64.urlsafe_b64encode(raw).decode()
    assert Tokens(SECRET, "lease").read(QUEUE, token) is None


# --- tokens that are handed out together ---


def read_all(tokens: Tokens, texts: list[str], queue: str = QUEUE) -> list[tuple[int, int] | None]:
    return tokens.read_all(queue, texts)


LEASED = st.lists(
    st.tuples(st.integers(1, 2**ids.SEQ_BITS - 2_000), st.integers(1, 1_200), ATTEMPTS), max_size=5
)


@given(LEASED, st.randoms())
def test_tokens_of_one_call_read_back_in_any_order(
    runs: list[tuple[int, int, int]], random: random.Random
) -> None:
    leased = [(first + n, attempt) for first, count, attempt in runs for n in range(count)]
    tokens = Tokens(SECRET, "lease")
    made = tokens.mint_all(QUEUE, [seq for seq, _ in leased], [attempt for _, attempt in leased])
    pairs = list(zip(made, leased, strict=True))
    random.shuffle(pairs)
    assert read_all(tokens, [text for text, _ in pairs]) == [each for _, each in pairs]


def test_neighbours_on_the_same_attempt_share_all_but_their_number(tokens: Tokens) -> None:
    made = tokens.mint_all(QUEUE, [7, 8, 9, 11, 12, 13], [1, 1, 1, 1, 1, 2])
    assert len({text[4:] for text in made[:3]}) == 1
    assert len({text[4:] for text in made[3:5]}) == 1
    assert made[5] == tokens.mint(QUEUE, 13, 2)
    assert max(map(len, made)) == 32


def test_no_more_than_so_many_tokens_share(tokens: Tokens) -> None:
    count = ids.SHARED_MAX + 5
    made = tokens.mint_all(QUEUE, range(1, count + 1), [1] * count)
    assert len({text[4:] for text in made}) == 2
    assert read_all(tokens, made) == [(seq, 1) for seq in range(1, count + 1)]


def test_a_shared_token_reads_for_nobody_else(tokens: Tokens) -> None:
    made = tokens.mint_all(QUEUE, [7, 8], [1, 1])
    assert read_all(tokens, made, OTHER_QUEUE) == [None, None]
    assert read_all(Tokens(SECRET, "ref"), made) == [None, None]
    assert read_all(Tokens(b"t" * 32, "lease"), made) == [None, None]
    assert [tokens.read(QUEUE, text, "some id") for text in made] == [None, None]


def test_a_shared_token_names_only_what_was_handed_out_with_it(tokens: Tokens) -> None:
    shared = tokens.mint_all(QUEUE, [7, 8, 9], [1, 1, 1])[0][4:]
    numbers = [f"{n:04x}" for n in range(1 << 16)]
    read = read_all(tokens, [number + shared for number in numbers])
    assert [place for place in read if place is not None] == [(7, 1), (8, 1), (9, 1)]
    odd = [
        "",
        "0",
        "000",
        "00000",
        "0x00",
        "000A",
        " 000",
        "+000",
        "-001",
        "\u0660" * 4,
        "\ud800000",
    ]
    assert read_all(tokens, [number + shared for number in odd]) == [None] * len(odd)


def test_a_shared_token_with_any_bit_changed_does_not_read(tokens: Tokens) -> None:
    number, shared = (text := tokens.mint_all(QUEUE, [7, 8], [1, 1])[1])[:4], text[4:]
    raw = base64.urlsafe_b64decode(shared)
    forged = []
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        forged.append(number + base64.urlsafe_b64encode(bytes(changed)).decode())
    assert read_all(tokens, forged) == [None] * len(forged)
    assert read_all(tokens, [text, *forged])[0] == (8, 1)


def test_a_bound_token_cannot_pass_for_a_shared_one(tokens: Tokens) -> None:
    """A publisher may choose the id, so it could be the rest of another token's head."""
    attempt = (1).to_bytes(3, "big")
    raw = base64.urlsafe_b64decode(tokens.mint(QUEUE, 7, 5, attempt.decode("latin-1")))
    head, mac = raw[:9] + attempt, raw[9:]
    assert read_all(tokens, ["0000" + base64.urlsafe_b64encode(head + mac).decode()]) == [None]


@given(st.lists(st.text() | st.text(min_size=32, max_size=32), max_size=5))
def test_no_texts_upset_the_reading_of_tokens(texts: list[str]) -> None:
    assert Tokens(SECRET, "lease").read_all(QUEUE, texts) == [None] * len(texts)


def test_tokens_of_before_are_read_among_shared_ones(tokens: Tokens) -> None:
    old = tokens.mint(QUEUE, 5, 3)
    made = tokens.mint_all(QUEUE, [7, 8], [1, 1])
    assert read_all(tokens, [made[0], old, made[1]]) == [(7, 1), (5, 3), (8, 1)]


# --- tokens that are bound to a text ---

TEXTS = st.text(min_size=1, max_size=40)


@given(LEASED, st.randoms(), TEXTS)
def test_bound_tokens_read_back_with_their_texts_and_no_others(
    runs: list[tuple[int, int, int]], random: random.Random, other: str
) -> None:
    leased = [(first + n, attempt) for first, count, attempt in runs for n in range(count)]
    tokens, texts = Tokens(SECRET, "lease"), [f"text {place}" for place in range(len(leased))]
    seqs, attempts = [seq for seq, _ in leased], [attempt for _, attempt in leased]
    made = tokens.mint_all(QUEUE, seqs, attempts, texts)
    held = list(zip(made, texts, leased, strict=True))
    random.shuffle(held)
    shuffled, named = [token for token, *_ in held], [text for _, text, _ in held]
    assert tokens.read_all(QUEUE, shuffled, named) == [each for *_, each in held]
    assert tokens.read_all(QUEUE, shuffled, [other] * len(held)) == [None] * len(held)
    assert tokens.read_all(OTHER_QUEUE, shuffled, named) == [None] * len(held)
    assert tokens.read_all(QUEUE, shuffled) == [None] * len(held)
    assert tokens.read_all(QUEUE, tokens.mint_all(QUEUE, seqs, attempts), texts) == [
        None for _ in leased
    ]


def test_a_bound_token_with_any_character_changed_does_not_read(tokens: Tokens) -> None:
    made = tokens.mint_all(QUEUE, [7, 8], [1, 1], ["one", "two"])
    for at, old in enumerate(made[1]):
        for new in "A0f":
            forged = made[1][:at] + new + made[1][at + 1 :]
            assert old == new or tokens.read_all(QUEUE, [forged], ["two"]) == [None]


@given(st.text(max_size=48), st.characters())
def test_no_text_upsets_the_reading_of_a_bound_token(text: str, bound: str) -> None:
    tokens = Tokens(SECRET, "lease")
    assert tokens.read_all(QUEUE, [text], [bound]) == [None]
    made = tokens.mint_all(QUEUE, [7, 8], [1, 1], ["one", "two"])
    assert tokens.read_all(QUEUE, made, [bound, "\ud800"]) == [None, None]
    single = tokens.mint(QUEUE, 7, 1, "one")
    assert tokens.read_all(QUEUE, [single], ["\ud800"]) == [None]


def test_who_holds_bound_tokens_cannot_write_those_of_others(tokens: Tokens) -> None:
    """Whatever checksum they put together: their numbers end where what they were given does."""
    made = tokens.mint_all(QUEUE, [7, 8], [1, 1], ["one", "two"])
    shared = made[0][ids._BOUND_SHARED_PART]
    [check] = ids._checks(["three"], [2], shared)
    assert tokens.read_all(QUEUE, [f"0002{check}{shared}"], ["three"]) == [None]
