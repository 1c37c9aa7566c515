"""beanstalkd with a binlog that is synced at every write.

It knows no batches: a batch is so many commands in one write.
"""

import re
import shutil
from pathlib import Path

from bench.client import NewScript, Refused, Script, lines
from bench.process import Process, free_port
from bench.workload import BODY, Workload

_LEASE_S = 30
_RESERVED = re.compile(rb"RESERVED (\d+) ")


class BeanstalkdServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.process = Process(
            ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(directory), "-f0"],
            port=port,
            directory=directory,
        )
        self.process.wait_until(self.process.answers)

    def publish(self, client: int, batch: int) -> NewScript:
        request = b"put 0 0 %d %d\r\n%b\r\n" % (_LEASE_S, len(BODY), BODY) * batch
        whole = lines(batch)

        def script() -> Script:
            answer = yield request, whole
            if answer.count(b"INSERTED ") != batch:
                raise Refused(answer[:200].decode())
            return batch

        return script

    def cycle(self, client: int, batch: int) -> NewScript:
        publish = self.publish(client, batch)
        reserve = b"reserve\r\n" * batch
        reserved_whole, deleted_whole = lines(2 * batch), lines(batch)

        def script() -> Script:
            yield from publish()
            ids = _RESERVED.findall((yield reserve, reserved_whole))
            answer = yield b"".join([b"delete %b\r\n" % id for id in ids]), deleted_whole
            if answer.count(b"DELETED\r\n") != batch:
                raise Refused(answer[:200].decode())
            return batch

        return script


class Beanstalkd:
    name = "beanstalkd"

    def takes(self, workload: Workload) -> bool:
        return not workload.ours

    def installed(self) -> bool:
        return shutil.which("beanstalkd") is not None

    def start(self, directory: Path) -> BeanstalkdServer:
        return BeanstalkdServer(directory)
