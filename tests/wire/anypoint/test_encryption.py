"""Encrypted queues and exchanges: bodies in clear for consumers, and nowhere on disk."""

import base64
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.server import Server
from tests.wire.anypoint.destination import Exchange, Queue, bodies, new_name
from tests.wire.anypoint.environment import Environment, root_client

HIDDEN_BYTES = 1_048_576


@dataclass
class Vault:
    """A server of its own, and what lies on its disk."""

    server: Server
    env: Environment

    def holds(self, text: str) -> bool:
        """Whether any file of the data directory holds these bytes, plain or as base64."""
        raw = text.encode()
        # The middle of a longer base64 text, whatever stands before it.
        encoded = [base64.b64encode(b"x" * pad + raw)[4:-4] for pad in range(3)]
        return any(
            needle in content
            for content in map(Path.read_bytes, self._files())
            for needle in (raw, raw.hex().encode(), *encoded)
        )

    def _files(self) -> list[Path]:
        files = [path for path in self.server.data.rglob("*") if path.is_file()]
        assert {"courier.db", "courier.db-wal"} <= {path.name for path in files}
        return files


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    server = Server(tmp_path_factory.mktemp("vault")).start()
    with root_client(server.url) as http:
        yield Vault(server, Environment.of(http, server.credentials))
    server.stop()


def secret() -> str:
    return new_name("secret") * 3


def test_a_plain_body_lies_on_disk_in_clear(vault: Vault) -> None:
    text = secret()
    Queue.create(vault.env).publish(text)
    assert vault.holds(text)


@pytest.mark.parametrize("fifo", [False, True])
def test_an_encrypted_body_lies_nowhere_in_clear(vault: Vault, fifo: bool) -> None:
    queue = Queue.create(vault.env, encrypted=True, fifo=fifo)
    texts = [secret() for _ in range(4)]
    queue.publish(texts[0], id="m", headers={"own": 1}, properties={"p": "in-clear-" + queue.name})
    queue.publish_batch(texts[1:])
    found = queue.get()
    assert bodies(found) == texts
    assert (found[0].headers["own"], found[0].id) == (1, "m")
    queue.nack(found[0])
    queue.ack_batch([message.item for message in found[1:]])
    assert not any(vault.holds(text) for text in texts)
    # Headers and properties are not sealed, and so show that the search can find something.
    assert vault.holds("in-clear-" + queue.name)


def test_a_large_encrypted_body_lies_nowhere_in_clear(vault: Vault) -> None:
    queue = Queue.create(vault.env, encrypted=True)
    text = secret()
    body = text + "x" * 3_000_000 + text
    queue.publish(body)
    assert queue.get_one().body == body
    assert not vault.holds(text)


def test_a_dead_letter_stays_encrypted_in_a_plain_queue(vault: Vault) -> None:
    dead = Queue.create(vault.env)
    queue = Queue.create(vault.env, encrypted=True, deadLetterQueueId=dead.name, maxDeliveries=1)
    by_nack, by_expiry = secret(), secret()
    queue.publish(by_nack)
    queue.nack(queue.get_one())
    queue.publish(by_expiry)
    queue.get_one(lockTtl=0)
    found = dead.get()
    assert bodies(found) == [by_nack, by_expiry]
    # They are readable on their way back, too.
    dead.nack_batch([message.item for message in found])
    Command("--data", str(vault.server.data))("redrive", dead.name)
    assert bodies(queue.get()) == [by_nack, by_expiry]
    assert not vault.holds(by_nack)
    assert not vault.holds(by_expiry)


def test_a_dead_letter_of_a_plain_queue_stays_readable_in_an_encrypted_one(vault: Vault) -> None:
    dead = Queue.create(vault.env, encrypted=True)
    queue = Queue.create(vault.env, deadLetterQueueId=dead.name, maxDeliveries=1)
    queue.publish("plain")
    queue.nack(queue.get_one())
    assert dead.get_one().body == "plain"


@pytest.mark.parametrize(
    ("exchange_too", "queue_too"), [(True, False), (False, True), (True, True)]
)
def test_copies_are_encrypted_for_the_exchange_or_for_the_queue(
    vault: Vault, exchange_too: bool, queue_too: bool
) -> None:
    exchange = Exchange.create(vault.env, encrypted=exchange_too)
    queue = Queue.create(vault.env, encrypted=queue_too)
    exchange.bind(queue)
    one, batch = secret(), [secret(), secret()]
    exchange.publish(one)
    exchange.publish_batch(batch)
    assert bodies(queue.get()) == [one, *batch]
    assert not any(vault.holds(text) for text in (one, *batch))


def test_a_copy_for_a_plain_queue_is_plain(vault: Vault) -> None:
    exchange = Exchange.create(vault.env)
    sealed, plain = Queue.create(vault.env, encrypted=True), Queue.create(vault.env)
    for queue in (sealed, plain):
        exchange.bind(queue)
    text = secret()
    exchange.publish(text)
    assert (bodies(sealed.get()), bodies(plain.get())) == ([text], [text])
    assert vault.holds(text)


def test_the_flag_counts_for_what_comes_after_it(vault: Vault) -> None:
    queue = Queue.create(vault.env)
    before, after, later = secret(), secret(), secret()
    queue.publish(before)
    queue.change(encrypted=True)
    queue.publish(after)
    queue.change(encrypted=False)
    queue.publish(later)
    assert bodies(queue.get()) == [before, after, later]
    assert [vault.holds(text) for text in (before, after, later)] == [True, False, True]


@pytest.mark.parametrize(("size", "hidden"), [(HIDDEN_BYTES, False), (HIDDEN_BYTES + 1, True)])
def test_the_size_of_an_encrypted_body_is_that_of_its_text(
    vault: Vault, size: int, hidden: bool
) -> None:
    queue = Queue.create(vault.env, encrypted=True)
    queue.publish("x" * size)
    assert (queue.get_one(payloadVisibility="conditional").body is None) is hidden


def test_secrets_of_apps_lie_nowhere_but_in_the_credentials(vault: Vault) -> None:
    env = vault.env
    made = env.call(
        "PUT", env.admin_path + "/clients", {"name": new_name("app")}, token=env.tokens.user
    )
    assert made.status_code == 200, made.text
    assert not vault.holds(made.json()["clientSecret"])
    for token in (env.tokens.app, env.tokens.user, env.tokens.connected_app):
        assert not vault.holds(token)


def test_the_key_is_for_the_owner_only(vault: Vault) -> None:
    key = vault.server.data / "encryption.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(base64.b64decode(key.read_text().strip(), validate=True)) == 32


# --- keys over time ---

OLD, NEW = (base64.b64encode(character * 32).decode() for character in (b"o", b"n"))


@contextmanager
def started(directory: Path, keys: str) -> Iterator[Environment]:
    with (
        Server(directory, env={"COURIER_ENCRYPTION_KEYS": keys}).start() as server,
        root_client(server.url) as http,
    ):
        yield Environment.of(http, server.credentials)


@pytest.mark.slow
def test_a_body_is_read_with_the_key_it_was_written_with(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("keys")
    name = new_name()
    with started(directory, OLD) as env:
        Queue.create(env, name, encrypted=True).publish("old")
    with started(directory, f"{NEW},{OLD}") as env:
        queue = Queue(env, name)
        queue.publish("new")
        found = queue.get()
        assert bodies(found) == ["old", "new"]
        queue.nack_batch([message.item for message in found])
    # Without its key a message is not lost, only out of reach.
    with started(directory, NEW) as env:
        assert Queue(env, name).poll(pollingTime=0, lockTtl=0).status_code == 503
    with started(directory, f"{OLD},{NEW}") as env:
        assert bodies(Queue(env, name).get()) == ["old", "new"]
