"""What a restart goes on from: Courier's time, as a file."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from courier import files
from courier.clock import elapsed_ns

# How far the record of this boot may be off: by so much leases can be shorter after a restart.
RECORD_MS_MAX = 20
_MS_NS = 1_000_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockRecord:
    """A file with Courier's time on the scale of time since boot.

    With it a restart under the same boot goes on as if the process had not ended, however long it
    was away and whatever the wall clock says. After a power cut the boot is another one, and the
    record void.
    """

    def __init__(
        self,
        path: Path,
        *,
        boot_id: str | None = None,
        elapsed_ns: Callable[[], int] = elapsed_ns,
    ) -> None:
        self._path = path
        self._boot_id = _boot_id() if boot_id is None else boot_id
        self._elapsed_ns = elapsed_ns
        self._written_ms: int | None = None

    def read(self) -> int | None:
        """Courier's time now; None if there is no record of this boot."""
        try:
            record = json.loads(self._path.read_bytes())
            boot_id, began_ms = record["boot_id"], record["boot_ms"]
            whole = record["checksum"] == _checksum(boot_id, began_ms)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        if not whole or not self._boot_id or boot_id != self._boot_id or type(began_ms) is not int:
            return None
        return began_ms + self._elapsed_ns() // _MS_NS

    def boot_ms(self, now_ms: int) -> int:
        """Courier's time at the boot, if it is `now_ms` at this moment."""
        return now_ms - self._elapsed_ns() // _MS_NS

    def keep(self, boot_ms: int) -> None:
        """Write it if it is not there or RECORD_MS_MAX off or more. Raises OSError."""
        written_ms = self._written_ms
        if not self._boot_id or (
            written_ms is not None and abs(boot_ms - written_ms) < RECORD_MS_MAX
        ):
            return
        checksum = _checksum(self._boot_id, boot_ms)
        record = {"boot_id": self._boot_id, "boot_ms": boot_ms, "checksum": checksum}
        files.write(self._path, json.dumps(record).encode())
        self._written_ms = boot_ms


def _checksum(boot_id: object, boot_ms: object) -> int:
    """A digit that the disk got wrong would end every message at once, or none for years."""
    return crc32(f"{boot_id} {boot_ms}".encode())


def _boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""
