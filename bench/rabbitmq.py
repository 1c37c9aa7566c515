"""RabbitMQ with a quorum queue and publisher confirms, which come when a message is synced.

Clients consume: the server hands out as many messages as a batch has before they are acked. Acks
have no answer, so they go out with the next publishes, many in one.
"""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.client import NewScript, Script, move
from bench.process import Process, free_port
from bench.workload import BODY, Workload

# Debian's own wrapper of the first changes the user, and wants folders of the system.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_METHOD, _HEADER, _CONTENT, _END = 1, 2, 3, b"\xce"
_HEAD = struct.Struct(">BHI")
_QUEUE = b"\x05bench"
_FRAME_BYTES = 131_072
# Class and method of what is waited for.
_START, _TUNE, _OPENED = (10, 10), (10, 30), (10, 41)
_CHANNEL, _DECLARED, _CONFIRMING = (20, 11), (50, 11), (85, 11)
_QOS, _CONSUMING, _DELIVERED, _CONFIRMED = (60, 11), (60, 21), (60, 60), (60, 80)
_TAG = struct.Struct(">QB")


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def _method(channel: int, family: int, number: int, payload: bytes = b"") -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", family, number) + payload)


def _methods(answer: bytes, start: int = 0) -> Iterator[tuple[tuple[int, int], bytes, int]]:
    """Methods that have arrived whole: which, what is said, and where the next frame begins."""
    while start + _HEAD.size < len(answer):
        kind, _, size = _HEAD.unpack_from(answer, start)
        body = start + _HEAD.size
        start = body + size + 1
        if start > len(answer):
            return
        if kind == _METHOD:
            family, number = struct.unpack_from(">HH", answer, body)
            yield (family, number), answer[body + 4 : start - 1], start


def _until(wanted: tuple[int, int]) -> Callable[[bytes], bool]:
    return lambda answer: any(found == wanted for found, *_ in _methods(answer))


def _publishes(batch: int) -> bytes:
    told = _method(1, 60, 40, b"\0\0" + b"\0" + _QUEUE + b"\0")
    # Two is persistent.
    about = _frame(_HEADER, 1, struct.pack(">HHQHB", 60, 0, len(BODY), 0x1000, 2))
    return (told + about + _frame(_CONTENT, 1, BODY)) * batch


class _Channel:
    """One client's: which publishes are not confirmed yet, and what was delivered."""

    def __init__(self, batch: int, *, consumes: bool) -> None:
        self._batch = batch
        self._consumes = consumes
        self._published = 0
        self._open: set[int] = set()  # tags that are not confirmed
        self._delivered = 0
        self._last = 0
        self._at = 0
        self._ready = False

    def script(self) -> Script:
        acks = b""
        if not self._ready:
            yield from self._greet()
            self._ready = True
        elif self._consumes:
            acks = _method(1, 60, 80, _TAG.pack(self._last, 1))
        self._open.update(range(self._published + 1, self._published + self._batch + 1))
        self._published += self._batch
        self._delivered = self._at = 0
        yield acks + _publishes(self._batch), self._done
        return self._batch

    def opened(self) -> Script:
        """Only make the queue, which many cannot do at the same time."""
        yield from self._greet()
        return 1

    def _done(self, answer: bytes) -> bool:
        for found, said, end in _methods(answer, self._at):
            self._at = end
            if found == _CONFIRMED:
                tag, many = _TAG.unpack_from(said)
                self._open -= {each for each in self._open if each <= tag} if many else {tag}
            elif found == _DELIVERED:
                self._delivered += 1
                self._last = struct.unpack_from(">Q", said, 1 + said[0])[0]
        return not self._open and self._delivered >= self._batch * self._consumes

    def _greet(self) -> Script:
        yield b"AMQP\0\0\x09\1", _until(_START)
        login = b"\0\0\0\0" + b"\x05PLAIN" + struct.pack(">I", 12) + b"\0guest\0guest\x05en_US"
        yield _method(0, 10, 11, login), _until(_TUNE)
        tune = struct.pack(">HIH", 1, _FRAME_BYTES, 0)
        yield _method(0, 10, 31, tune) + _method(0, 10, 40, b"\x01/\0\0"), _until(_OPENED)
        yield _method(1, 20, 10, b"\0"), _until(_CHANNEL)
        told = b"\x0cx-queue-typeS" + struct.pack(">I", 6) + b"quorum"
        # Durable; made again it is the same.
        made = b"\0\0" + _QUEUE + b"\x02" + struct.pack(">I", len(told)) + told
        yield _method(1, 50, 10, made), _until(_DECLARED)
        yield _method(1, 85, 10, b"\0"), _until(_CONFIRMING)
        if self._consumes:
            yield _method(1, 60, 10, struct.pack(">IHB", 0, self._batch, 0)), _until(_QOS)
            yield _method(1, 60, 20, b"\0\0" + _QUEUE + b"\0\0\0\0\0\0"), _until(_CONSUMING)
        return 0


class _Node(Process):
    """RabbitMQ and the daemon that it is found by."""

    def __init__(self, directory: Path) -> None:
        port, names, between = free_port(), free_port(), free_port()
        here = "ERL_EPMD_ADDRESS=127.0.0.1"
        command = ["env", here, "epmd", "-port", str(names)]
        self._names = Process(command, port=names, directory=directory)
        self._names.wait_until(self._names.answers)
        settings = {
            "HOME": directory,
            "ERL_EPMD_PORT": names,
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": between,
            "RABBITMQ_MNESIA_BASE": directory,
            "RABBITMQ_LOG_BASE": directory,
            "RABBITMQ_CONFIG_FILE": directory / "none",
            "RABBITMQ_CONF_ENV_FILE": directory / "none.sh",
            "RABBITMQ_ENABLED_PLUGINS_FILE": directory / "plugins",
            # It stays in front, and ends with the first signal.
            "RABBITMQ_ALLOW_INPUT": 1,
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        super().__init__(["env", here, *given, str(_PROGRAM)], port=port, directory=directory)

    def stop(self) -> None:
        super().stop()
        self._names.stop()


class RabbitServer:
    def __init__(self, directory: Path) -> None:
        self.process = _Node(directory)
        self.process.wait_until(self.process.answers)
        move(self.process, [_Channel(1, consumes=False).opened], messages=1)

    def publish(self, client: int, batch: int) -> NewScript:
        return _Channel(batch, consumes=False).script

    def cycle(self, client: int, batch: int) -> NewScript:
        return _Channel(batch, consumes=True).script


class RabbitMQ:
    name = "rabbitmq quorum queue"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours

    def installed(self) -> bool:
        return _PROGRAM.exists() and shutil.which("epmd") is not None

    def start(self, directory: Path) -> RabbitServer:
        return RabbitServer(directory)
