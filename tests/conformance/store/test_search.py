"""Messages by what they hold, looked for without leasing."""

import msgspec
import pytest

from courier.core.types import Draft, Message, Queue
from tests.conformance.store.driver import Driver


def seqs(found: list[Message]) -> list[int]:
    return [message.seq for message in found]


def test_text_is_found_in_bodies_headers_and_the_publishers_ids(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(
        queue,
        "an order of c00042",
        "nothing",
        Draft(b"x", headers={"customer": "c00042"}),
        Draft(b"x", headers={"c00042": 1}),
        Draft(b"x", headers={"list": ["c00042", 'a "quoted" one']}),
        Draft(b"x", id="order-c00042"),
        Draft(b"\xff\x00c00042\xfe", content_type="bytes"),
    )
    assert seqs(driver.search(queue, "c00042")) == [1, 3, 4, 5, 6, 7]
    assert seqs(driver.search(queue, "c00043")) == []
    assert seqs(driver.search(queue, "c00042", newest=True)) == [7, 6, 5, 4, 3, 1]


def test_text_that_json_escapes_is_found_in_headers(driver: Driver, queue: Queue) -> None:
    driver.publish(
        queue,
        Draft(b"1", headers={"says": 'a "quoted" word'}),
        Draft(b"2", headers={"path": "C:\\temp\n"}),
        Draft(b"3", headers={"name": "Zoë 😀"}),
        Draft(b"4", headers={"flag": True, "none": None, "many": 1.5}),
        Draft(b"5", headers={'in "keys"': 1}),
    )
    assert seqs(driver.search(queue, '"quoted"')) == [1]
    assert seqs(driver.search(queue, "C:\\temp\n")) == [2]
    assert seqs(driver.search(queue, "ë 😀")) == [3]
    assert seqs(driver.search(queue, "true")) == [4]
    assert seqs(driver.search(queue, "null")) == [4]
    assert seqs(driver.search(queue, "1.5")) == [4]
    assert seqs(driver.search(queue, '"keys"')) == [5]


def test_a_generated_id_is_found_as_a_whole(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *(str(number) for number in range(10)))
    fifth = driver.browse(queue)[4]
    driver.publish(queue, f"an answer to {fifth.id}")
    assert seqs(driver.search(queue, fifth.id)) == [5, 11]
    assert seqs(driver.search(queue, fifth.id[:20])) == [11]


def test_a_value_is_found_at_its_path_however_it_is_written(driver: Driver, queue: Queue) -> None:
    driver.publish(
        queue,
        '{"customer": {"id": "c00042"}}',
        '{"customer": {"id": "c0004\\u0032"}}',
        '{"customer": {"id": "c000421"}}',
        '{"customer": [{"id": 1000}]}',
        '{"customer": {"id": 1e3}}',
        '{"customer": {"id": "a\\/b"}}',
        '{"customer": {"id": { "b" : [ 1 ] }}}',
        "customer.id c00042",
        '{"customer": {"id": true}}',
        '{"customer": {"id": ""}}',
    )
    at = "customer.id"
    assert seqs(driver.search(queue, "c00042", at)) == [1, 2]
    assert seqs(driver.search(queue, "1000", "customer.0.id")) == [4]
    assert seqs(driver.search(queue, "1000.0", at)) == [5]
    assert seqs(driver.search(queue, "a/b", at)) == [6]
    assert seqs(driver.search(queue, '{"b":[1]}', at)) == [7]
    assert seqs(driver.search(queue, "true", at)) == [9]
    assert seqs(driver.search(queue, "", at)) == [10]


def test_what_is_done_is_not_found_and_what_is_leased_is(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *(f"word {number}" for number in range(12)))
    leased = driver.lease(queue, count=6)
    for message in leased[:3]:
        driver.ack(queue, message)
    driver.retry(queue, leased[3], delay_ms=1_000)
    found = driver.search(queue, "word")
    assert seqs(found) == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert [each.attempts for each in found] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert found == driver.browse(queue)
    driver.remove(queue, 8)
    assert 8 not in seqs(driver.search(queue, "word"))


def test_pages_go_on_where_they_end_in_both_directions(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, *(f"{'odd' if number % 2 else 'even'}" for number in range(1, 41)))
    odd = list(range(1, 41, 2))
    for limit in (1, 3, 7):
        assert seqs(driver.search(queue, "odd", limit=limit)) == odd
        assert seqs(driver.search(queue, "odd", limit=limit, newest=True)) == odd[::-1]
    inside = driver.search(queue, "odd", after=5, before=15, limit=2)
    assert seqs(inside) == [7, 9, 11, 13]
    inside = driver.search(queue, "odd", after=5, before=15, limit=2, newest=True)
    assert seqs(inside) == [13, 11, 9, 7]


def test_a_name_given_later_counts(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, "a", Draft(b"b", headers={"name": "first name"}), "c", "d", "e")
    assert driver.rename(queue, 4, "later name")
    assert driver.rename(queue, 2, "other")
    assert seqs(driver.search(queue, "name")) == [2, 4]
    assert seqs(driver.search(queue, "first name")) == []
    assert seqs(driver.search(queue, "later")) == [4]
    assert seqs(driver.search(queue, "c")) == [3]
    assert driver.search(queue, "later")[0].headers == {"name": "later name"}


def test_bodies_that_are_sealed_are_not_searched_their_headers_are(
    driver: Driver, queue: Queue
) -> None:
    driver.publish(queue, Draft(b"plain word", headers={"about": "word"}, sealed="key"))
    driver.publish(queue, Draft(b"other word", sealed="key"))
    assert seqs(driver.search(queue, "word")) == [1]
    driver.publish(queue, Draft(b'{"a": "word"}', sealed="key"))
    assert seqs(driver.search(queue, "word", "a")) == []


def test_messages_of_other_queues_are_not_found(driver: Driver, queue: Queue) -> None:
    other = driver.queue("other")
    driver.publish(queue, "word")
    driver.publish(other, "word", "word")
    assert seqs(driver.search(queue, "word")) == [1]
    assert seqs(driver.search(other, "word", newest=True)) == [2, 1]


@pytest.mark.parametrize("text", ["\x00", "\ud800", "'", "%", "ß" * 500])
@pytest.mark.every_value
def test_odd_text_finds_only_what_has_it(driver: Driver, queue: Queue, text: str) -> None:
    driver.publish(queue, "plain", text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    expected = [] if text == "\ud800" else [2]
    assert seqs(driver.search(queue, text)) == expected


def test_a_message_that_has_expired_is_not_found(driver: Driver, queue: Queue) -> None:
    driver.publish(queue, Draft(b"word", ttl_ms=1_000), "word")
    driver.advance(1_000)
    assert seqs(driver.search(queue, "word")) == [2]


def test_every_message_that_is_read_is_found_by_a_word_of_its_body(driver: Driver) -> None:
    queue = driver.queue("long")
    bodies = [
        msgspec.json.encode({"order": number, "pad": "x" * (number % 90)}) for number in range(700)
    ]
    for first in range(0, 700, 70):
        driver.publish(queue, *(Draft(body) for body in bodies[first : first + 70]))
    for number in (0, 1, 349, 698, 699):
        assert seqs(driver.search(queue, f'"order":{number},')) == [number + 1]
