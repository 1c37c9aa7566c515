"""PostgreSQL for tests: a server of our own for each process that runs tests, ended with it.

It does not wait for its disk. Tests that kill it start one that does; see `Database`.
"""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from courier.store.disk_postgres.turns import ALONE_MIN
from tests.server import free_port

_USER: Final = "postgres"
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
GONE_S_MAX = 20.0
_PLACES = "/usr/lib/postgresql/*/bin"


def program(name: str) -> str:
    """A program of PostgreSQL: Debian keeps most off the PATH, and has a slow script for psql."""
    places = sorted(Path("/").glob(f"{_PLACES[1:]}/{name}"), key=lambda path: path.parts[-3])
    found = str(places[-1]) if places else shutil.which(name)
    assert found is not None, "PostgreSQL is not installed: run scripts/postgres"
    return found


def as_postgres() -> list[str]:
    """It refuses to run as root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(_USER)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class Database:
    """One server in a directory of its own, which goes with it; `of` another: its standby;
    `programs`: those of another release."""

    def __init__(
        self, *settings: str, of: "Database | None" = None, programs: Path | None = None
    ) -> None:
        self.port = free_port()
        self._programs = programs
        self._root = Path(tempfile.mkdtemp(prefix="courier-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self._root, _USER)
        self.data = self._root / "data"
        self._settings = settings
        self._make(of)
        atexit.register(self.remove)

    def _make(self, of: "Database | None") -> None:
        if of is None:
            self._run("initdb", "-D", self.data, "-A", "trust", "-U", "courier", "--no-sync")
        else:
            where = ("-h", "127.0.0.1", "-p", of.port, "-U", "courier")
            how = ("--checkpoint=fast", "--no-sync", "-R")
            self._run("pg_basebackup", "-D", self.data, *where, *how)
        self.start()

    def _run(self, name: str, *args: object, check: bool = True) -> None:
        place = self._programs / name if self._programs else program(name)
        command = [*as_postgres(), str(place), *(str(arg) for arg in args)]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        assert not check or not done.returncode, done.stdout + done.stderr

    def start(self) -> None:
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self._root}",
            "max_connections=300",
            *self._settings,
        )
        options = " ".join(f"-c {each}" for each in settings)
        log = self._root / "log"
        try:
            self._run("pg_ctl", "-D", self.data, "-o", options, "-l", log, "-w", "start")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()[-4_000:]}") from None

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is what a crash leaves behind."""
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop", check=False)

    def crash(self) -> None:
        """All its processes end at once, in the middle of whatever they do."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        pids = (postmaster, *children(postmaster))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Until then they may still write files, and hold the port.
        until_s = time.monotonic() + GONE_S_MAX
        while any(map(is_running, pids)):
            assert time.monotonic() < until_s, "processes of PostgreSQL outlive SIGKILL"
            time.sleep(0.01)
        # The next one would take a process that was not waited for yet for a living one.
        (self._root / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)

    def promote(self) -> None:
        """A standby becomes the primary."""
        self._run("pg_ctl", "-D", self.data, "-w", "promote")

    def follow(self, primary: "Database") -> None:
        """Forget everything and become its standby, on the same port."""
        shutil.rmtree(self.data)
        self._make(primary)

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._root, ignore_errors=True)

    def require_password(self, user: str) -> None:
        """From now on this user has to have one, and nobody else."""
        rules = self.data / "pg_hba.conf"
        kept = [line for line in rules.read_text().splitlines() if "scram" not in line]
        rules.write_text("\n".join([f"host all {user} 127.0.0.1/32 scram-sha-256", *kept, ""]))
        self.sql("SELECT pg_reload_conf()")
        self.sql("SELECT pg_sleep(0.2)")

    def url(self, schema: str) -> str:
        return f"postgresql://courier@127.0.0.1:{self.port}/postgres?schema={schema}"

    def sql(self, *statements: str) -> str:
        """What psql prints for them."""
        options = [arg for statement in statements for arg in ("-c", statement)]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "courier", "postgres"]
        command = [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", *where, *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody asked about yet is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(") ")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


class OpenTransaction:
    """One that has run statements, and holds their locks and snapshot until it is ended."""

    def __init__(self, database: Database, *statements: str) -> None:
        where = ["-h", "127.0.0.1", "-p", str(database.port), "-U", "courier", "postgres"]
        self._psql = subprocess.Popen(
            [program("psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._psql.stdin is not None and self._psql.stdout is not None
        for each in ("BEGIN", *statements, "SELECT 'open'"):
            self._psql.stdin.write(f"{each};\n")
        self._psql.stdin.flush()
        while (said := self._psql.stdout.readline()) != "open\n":
            assert said, "the transaction was not begun"

    def end(self) -> None:
        with self._psql:
            self._psql.kill()


# Which of its sides stops when a commit is to hang.
HANGING_S_MAX = 3.0
SENDER, RECEIVER = "sender", "receiver"
# Connections of servers whose group waits for the standby.
WAITING = """
SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'courier'
AND (query = 'COMMIT' OR query LIKE '%WITH turn%')
"""


class Pair:
    """A primary that answers once its standby has it too, and that standby."""

    # What a standby calls itself; nobody is answered as long as none is there.
    _STRICT = "synchronous_standby_names=walreceiver"

    def __init__(self) -> None:
        self.primary = Database(self._STRICT)
        self.standby = Database(self._STRICT, of=self.primary)

    def url(self, schema: str) -> str:
        places = ",".join(f"127.0.0.1:{each.port}" for each in (self.primary, self.standby))
        return f"postgresql://courier@{places}/postgres?schema={schema}"

    def fail_over(self, hanging: str = "") -> None:
        """The primary is gone, the standby takes its place, and gets a standby of its own.

        `hanging`: the primary ends while a commit waits for the standby, which has not been sent it
        (SENDER), or has, and has not said so (RECEIVER). Now and then something else waits, and no
        group comes so far.
        """
        stopped = {SENDER: self.senders, RECEIVER: self.receivers}[hanging]() if hanging else []
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        if hanging:
            self._wait_for(self.primary, WAITING)
            written = self.primary.sql("SELECT pg_current_wal_flush_lsn()").strip()
        self.primary.crash()
        if hanging == RECEIVER:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            received = f"SELECT 1 WHERE pg_last_wal_receive_lsn() >= '{written}'"
            self._wait_for(self.standby, received)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.standby.follow(self.primary)

    def senders(self) -> list[int]:
        """Processes of the primary that send its log to the standby."""
        return [int(pid) for pid in self.primary.sql("SELECT pid FROM pg_stat_replication").split()]

    def receivers(self) -> list[int]:
        """Processes of the standby that take it."""
        return [
            int(pid) for pid in self.standby.sql("SELECT pid FROM pg_stat_wal_receiver").split()
        ]

    def _wait_for(self, database: Database, question: str) -> None:
        until_s = time.monotonic() + HANGING_S_MAX
        while not database.sql(question) and time.monotonic() < until_s:
            time.sleep(0.01)

    def remove(self) -> None:
        self.primary.remove()
        self.standby.remove()


@cache
def server() -> Database:
    return Database(*_QUICK)


_schemas: dict[Path, str] = {}
_made: list[str] = []


def url_of(path: Path) -> str:
    """A database for a path: the same for the same path, and empty for one that is new.

    Making tables takes long, so those of a test before are emptied.
    """
    if path not in _schemas:
        for known in [known for known in _schemas if known.parent != path.parent]:
            _made.append(_schemas.pop(known))
        if _made:
            _schemas[path] = _made.pop()
            _empty(_schemas[path])
        else:
            _schemas[path] = f"s{len(_schemas)}_{free_port()}"
    return server().url(_schemas[path])


_TABLES = (
    "meta, head, grp, node, duty, record, lines, block, expiry, range, delivery, push, fact, "
    "packet, minute, level"
)


def _empty(schema: str) -> None:
    server().sql(f"SET search_path = {schema}", f"TRUNCATE {_TABLES}")


def believe_alone(node: Any) -> None:
    """A server takes itself for the only one that writes."""
    turns = node.writer._turns
    turns._alone = ALONE_MIN
    turns._others_s = turns._shared_until_s = 0.0


class InTurn:
    """Two nodes on one database: each verb goes to the other one than the verb before."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes

    def _turn(self) -> Any:
        self._nodes.reverse()
        return self._nodes[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn(), name)

    @property
    def doubt_ms(self) -> int:
        found: int = self._nodes[0].doubt_ms
        return found

    @doubt_ms.setter
    def doubt_ms(self, ms: int) -> None:
        for node in self._nodes:
            node.doubt_ms = ms

    async def change(self, *args: Any, **values: Any) -> Any:
        """Other servers see it within a second, which a busy machine may take."""
        answer = await self._turn().change(*args, **values)
        for node in self._nodes:
            await node.writer.current()
        return answer

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()
