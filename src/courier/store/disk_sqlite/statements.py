"""Every statement of the SQLite disk."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

_encode_json = msgspec.json.Encoder().encode


def keys_json(keys: Iterable[int]) -> str:
    return _encode_json(list(keys)).decode()


def texts_json(texts: Iterable[str]) -> str:
    return _encode_json(list(texts)).decode()


# --- what is kept in memory ---

EPOCH = "SELECT epoch FROM meta"
RECORDS = "SELECT body FROM record"
PUT_RECORD = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)"
DROP_RECORD = "DELETE FROM record WHERE kind = ? AND id = ?"
LINES = "SELECT * FROM line ORDER BY no"
PUT_LINE = "INSERT OR REPLACE INTO line VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
DROP_LINE = "DELETE FROM line WHERE no = ?"
RANGES = "SELECT id, until_ms, at_ms, count, claim, done FROM range ORDER BY id"
PUT_RANGE = "INSERT OR REPLACE INTO range VALUES (?, ?, ?, ?, ?, ?, ?)"
DROP_RANGE = "DELETE FROM range WHERE id = ?"
# Everything of a line that is deleted, but for its blocks.
EMPTY = (
    "DELETE FROM range WHERE id >= ? AND id < ?",
    "DELETE FROM delivery WHERE id >= ? AND id < ?",
    "DELETE FROM push WHERE id >= ? AND id < ?",
)

# --- blocks ---

BLOCK_AT = """
SELECT id, count FROM block WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1
"""
BLOCKS = """
SELECT id, at_ms, flags, only, count, last, meta_sum, data_sum, meta, data
FROM block WHERE id >= ? AND id < ? ORDER BY id LIMIT ?
"""
BLOCK_METAS = """
SELECT id, at_ms, flags, only, count, last, meta_sum, data_sum, meta, NULL
FROM block WHERE id >= ? AND id < ? ORDER BY id LIMIT ?
"""


class SqliteSearch(NamedTuple):
    """A search in the order of sequences, or backwards."""

    part: str
    holding: str


def _search(order: str) -> SqliteSearch:
    return SqliteSearch(
        # The ends of the blocks that are looked at next, by their number and their bytes.
        part=f"""
SELECT min(id), max(id + count - 1) FROM (
    SELECT id, count, sum(size) OVER (ORDER BY id {order}) - size AS before FROM (
        SELECT id, count, length(data) AS size FROM block
        WHERE id >= ? AND id <= ? ORDER BY id {order} LIMIT ?))
WHERE before < ?
""",
        holding=f"""
SELECT id, at_ms, flags, only, count, last, meta_sum, data_sum, meta, data FROM block
WHERE id >= ?1 AND id <= ?2 AND (
    instr(data, ?3) OR instr(data, ?4) OR instr(meta, ?5) OR instr(meta, ?6)
    OR (?7 >= id AND ?7 < id + count)
    OR (?8 IS NOT NULL AND EXISTS (
        SELECT 1 FROM fact WHERE line = ?9 AND kind = 'name'
        AND key >= printf('%011x', id & ?10) AND key < printf('%011x', (id & ?10) + count)
        AND instr(value, ?8))))
ORDER BY id {order} LIMIT ?11
""",
    )


SEARCH = _search("")
SEARCH_BACKWARDS = _search("DESC")
BLOCKS_OF = """
SELECT id, at_ms, flags, only, count, last, meta_sum, data_sum, meta, data
FROM block INDEXED BY block_last WHERE last = ? ORDER BY id
"""
PUT_BLOCK = "INSERT OR REPLACE INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DROP_BLOCK = "DELETE FROM block WHERE id = ?"
LOOSE = """
SELECT id, count, last FROM block INDEXED BY block_last
WHERE last > ? AND last <= ? ORDER BY last, id LIMIT ?
"""
PUT_EXPIRY = "INSERT OR REPLACE INTO expiry VALUES (?, ?)"
DROP_EXPIRY = "DELETE FROM expiry WHERE id = ?"
EXPIRED = "SELECT at_ms, id FROM expiry WHERE at_ms <= ? ORDER BY at_ms, id LIMIT ?"

# --- deliveries ---

_COLUMNS = """id, state, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id, expires_ms,
    grp, follows, claim, report"""


class DeliveryStatements(NamedTuple):
    """Statements for one of the two tables of deliveries."""

    insert: str
    update: str
    delete: str
    one: str
    at: str
    ready: str
    between: str
    between_all: str
    due: str


def _table(name: str) -> DeliveryStatements:
    select = f"SELECT {_COLUMNS} FROM {name}"
    return DeliveryStatements(
        insert=f"INSERT INTO {name} VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        update=f"""UPDATE {name} SET state = ?, attempt = ?, due_ms = ?, first_ms = ?, last_ms = ?,
            follows = ?, claim = ?, report = ? WHERE id = ?""",
        delete=f"DELETE FROM {name} WHERE id = ?",
        one=f"{select} WHERE id = ?",
        at=f"{select} WHERE id IN (SELECT value FROM json_each(?))",
        ready=f"""{select} INDEXED BY {name}_ready
            WHERE state = 0 AND id > ? AND id < ? ORDER BY id LIMIT ?""",
        between=f"""{select}
            WHERE state >= 0 AND id >= ? AND id <= ? ORDER BY id LIMIT ?""",
        between_all=f"{select} WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?",
        due=f"""{select} INDEXED BY {name}_due
            WHERE state BETWEEN 1 AND 2 AND due_ms <= ? ORDER BY due_ms, id LIMIT ?""",
    )


DELIVERIES = _table("delivery")
PUSHES = _table("push")
GROUP = f"""
SELECT {_COLUMNS} FROM delivery INDEXED BY delivery_group
WHERE grp = ? AND id > ? AND id < ? ORDER BY id LIMIT ?
"""
# In the order of its loops, so that it ends with the limit: a sort would read all groups.
READY_GROUPS = f"""
SELECT {", ".join(f"d.{column.strip()}" for column in _COLUMNS.split(","))} FROM (
    SELECT grp, id FROM delivery INDEXED BY delivery_ready
    WHERE state = 0 AND id > ?1 AND id < ?2 ORDER BY id LIMIT ?3) AS head
CROSS JOIN delivery AS d INDEXED BY delivery_group
WHERE d.grp = head.grp AND d.id > ?1 AND d.id < ?2 LIMIT ?3
"""
HEADS = f"""
SELECT {_COLUMNS} FROM delivery WHERE id IN (
    SELECT (
        SELECT d.id FROM delivery AS d INDEXED BY delivery_group
        WHERE d.grp = name.value AND d.id > ?1 AND d.id < ?2 ORDER BY d.id LIMIT 1)
    FROM json_each(?3) AS name)
"""
LEASED_GROUPS = """
SELECT id >> ?, grp, count(*) FROM delivery INDEXED BY delivery_due
WHERE state BETWEEN 1 AND 2 AND state = 1 AND grp IS NOT NULL GROUP BY 1, 2
"""
CLAIMED = f"""
SELECT {_COLUMNS} FROM delivery INDEXED BY delivery_claim
WHERE claim = ? AND claim > 0 ORDER BY id LIMIT ?
"""
OPEN = f"""
SELECT {_COLUMNS} FROM push INDEXED BY push_open
WHERE state BETWEEN 0 AND 2 AND id > ? AND id < ? ORDER BY id LIMIT ?
"""
MISSED = f"""
SELECT {_COLUMNS} FROM push INDEXED BY push_missed
WHERE report IS NOT NULL AND state >= 0 AND id > ? AND id < ? ORDER BY id DESC LIMIT ?
"""
DROP_SETTLED = "DELETE FROM push WHERE id >= ? AND id <= ?"

# --- facts ---

FACT = "SELECT key, until_ms, value FROM fact WHERE line = ? AND kind = ? AND key = ?"
FACTS = """
SELECT key, until_ms, value FROM fact
WHERE line = ? AND kind = ? AND key IN (SELECT value FROM json_each(?))
"""
FACTS_BELOW = """
SELECT key, until_ms, value FROM fact
WHERE line = ? AND kind = ? AND key >= ? || '/' AND key < ? || '0'
"""
PUT_FACT = "INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?, ?)"
DROP_FACT = "DELETE FROM fact WHERE line = ? AND kind = ? AND key = ?"
DROP_FACTS = "DELETE FROM fact WHERE line = ?"
DROP_FACTS_BETWEEN = "DELETE FROM fact WHERE line = ? AND kind = ? AND key >= ? AND key < ?"
FORGET_FACTS = """
DELETE FROM fact WHERE (line, kind, key) IN (
    SELECT line, kind, key FROM fact INDEXED BY fact_until WHERE until_ms <= ? LIMIT ?)
"""

# --- the journal ---

PUT_PACKET = "INSERT INTO packet VALUES (?, ?, ?, ?, ?, ?, ?)"
PACKETS = "SELECT * FROM packet WHERE last > ? ORDER BY last"
PACKET_TIME = "SELECT last, at_ms FROM packet WHERE last > ? ORDER BY last LIMIT 1"
LAST_OFFSET = "SELECT last FROM packet ORDER BY last DESC LIMIT 1"
NEWEST_PACKET = "SELECT last, total_bytes, at_ms FROM packet ORDER BY last DESC LIMIT 1"
OLDEST_PACKET = "SELECT last - count + 1, before_bytes FROM packet ORDER BY last LIMIT 1"
LAST_OLD = """
SELECT max(last) FROM (
    SELECT last, at_ms FROM packet
    WHERE last <= ?1 AND last < (SELECT max(last) FROM packet) ORDER BY last LIMIT ?2)
WHERE ?3 IS NULL OR at_ms < ?3
"""
TRIM = "DELETE FROM packet WHERE last <= ?"

# --- numbers of the past ---

ADD_MINUTE = """
INSERT INTO minute (minute, queue, kind, tenant, count, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes
"""
PUT_LEVEL = "INSERT OR IGNORE INTO level VALUES (?, ?, ?, ?, ?)"
TALLIES = """
SELECT minute, queue, kind, count, bytes FROM minute INDEXED BY minute_tenant
WHERE tenant = ? AND minute >= ? AND minute < ? ORDER BY minute, queue, kind
"""
TALLIES_OF = """
SELECT minute, queue, kind, count, bytes FROM minute INDEXED BY minute_queue
WHERE queue = ? AND tenant = ? AND minute >= ? AND minute < ? ORDER BY minute, kind
"""
LEVELS = """
SELECT minute, count, leased, delayed FROM level WHERE queue = ? AND minute >= ? ORDER BY minute
"""
FORGET_LEVELS = """
DELETE FROM level WHERE (queue, minute) IN (
    SELECT queue, minute FROM level WHERE minute < ? LIMIT ?)
"""
FORGET_MINUTES = """
DELETE FROM minute WHERE (minute, queue, kind) IN (
    SELECT minute, queue, kind FROM minute WHERE minute < ? LIMIT ?)
"""
ROLLED = "SELECT rolled FROM meta"
SUM_UP = """
INSERT INTO minute (minute, queue, kind, tenant, count, bytes)
SELECT minute - minute % 60, queue, kind, tenant, count, bytes FROM minute
WHERE minute >= ? AND minute < ? AND minute % 60 > 0 ORDER BY minute, queue, kind LIMIT ?
ON CONFLICT DO UPDATE SET count = count + excluded.count, bytes = bytes + excluded.bytes
"""
FORGET_SUMMED = """
DELETE FROM minute WHERE (minute, queue, kind) IN (
    SELECT minute, queue, kind FROM minute
    WHERE minute >= ? AND minute < ? AND minute % 60 > 0 ORDER BY minute, queue, kind LIMIT ?)
"""
SAVE_ROLLED = "UPDATE meta SET rolled = ?"
