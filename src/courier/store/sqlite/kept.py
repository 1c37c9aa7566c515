"""Messages that pullers are done with, and that are kept for their pushes."""

from collections.abc import Collection

from courier.store.sqlite.book import Book
from courier.store.sqlite.delivery import keys_json
from courier.store.sqlite.line import KEPT, SEQ_MASK, Line
from courier.store.sqlite.push_rows import PushRows

_KEEP = """
UPDATE message SET id = (id & ~4398046511104) | -9223372036854775808
WHERE id IN (SELECT value FROM json_each(?))
"""
_AT = """
SELECT id & 4398046511103, published_ms, expires_ms FROM message
WHERE id IN (SELECT value FROM json_each(?))
"""
_DELETE = "DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))"


class Kept:
    def __init__(self, book: Book, push_rows: PushRows) -> None:
        self._book = book
        self._db = book.db
        self._push_rows = push_rows

    def keep(self, line: Line, keys: Collection[int]) -> None:
        """Take messages out of the way of pullers; their deliveries are gone."""
        self._db.execute(_KEEP, (keys_json(keys),))
        line.kept += len(keys)
        first = min(key & SEQ_MASK for key in keys)
        line.passed[KEPT] = min(line.passed[KEPT], first - 1)

    def release(self, line: Line, seqs: Collection[int], now_ms: int) -> None:
        """Pushes of these messages are open no more: those that were kept only for them go.

        One that has an exhausted push stays as long as the queue's retention says.
        """
        if not line.kept:
            return
        keys = keys_json(line.message_key(seq, KEPT) for seq in seqs)
        kept = {seq: times for seq, *times in self._book.rows(_AT, (keys,))}
        if not kept:
            return
        missed = self._push_rows.unacknowledged(line, kept)
        done = kept.keys() - missed
        for seq in missed - self._push_rows.owed(line, missed):
            published_ms, own_ms = kept[seq]
            if own_ms is None and published_ms + line.queue.retention_ms <= now_ms:
                done.add(seq)
            elif own_ms is None:
                # It may have been passed over, while it was owed and the retention was shorter.
                line.passed[KEPT] = min(line.passed[KEPT], seq - 1)
                self._book.ages(line, published_ms)
        if done:
            self.end(line, done, "", now_ms)

    def end(self, line: Line, seqs: Collection[int], reason: str, now_ms: int) -> None:
        """Nothing tells the end of a kept message but that of its open pushes."""
        keys = keys_json(line.message_key(seq, KEPT) for seq in seqs)
        self._db.execute(_DELETE, (keys,))
        self._book.let_kept_go(line, len(seqs))
        self._push_rows.end(line, seqs, reason, now_ms)
