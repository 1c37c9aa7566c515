"""Every statement of the PostgreSQL disk."""

from typing import NamedTuple

# After how long without a word from it a node counts as gone.
GONE_S = 2.0

# --- what is kept in memory ---

EPOCH = "SELECT epoch FROM meta"
NEW_EPOCH = "UPDATE meta SET epoch = $1 WHERE epoch = $2"
# More groups than anybody remembers, so that all nodes read everything.
SKIP_GROUPS = "UPDATE head SET grp = grp + $1"
# A row that every group changes has many dead versions while somebody holds a snapshot. Going
# backward, an index comes to the newest first; forward it passes by all of them.
_NEWEST = "FROM head ORDER BY one DESC LIMIT 1"
_HEAD = """grp, journal_last, journal_bytes, journal_ms, journal_first, journal_start_bytes,
    next_due_ms, (SELECT token FROM grp WHERE no = $1)"""
HEAD = f"SELECT {_HEAD} {_NEWEST} "
LOCK_HEAD = HEAD + "FOR UPDATE"
GROUP_NO = f"SELECT grp {_NEWEST}"
LOCK_GROUP = f"{GROUP_NO} FOR UPDATE"
BARRIER = "UPDATE head SET barriers = barriers + 1"
# Writes next to nothing, into the log alone, and is committed like everything else.
CONFIRM = "SELECT pg_logical_emit_message(true, 'courier', '')"
TOKEN = "SELECT token FROM grp WHERE no = $1"
# What groups have changed since, of all that is kept in memory, and what they have published, up to
# some bytes, all in one round trip.
_CHANGED = """
ARRAY(SELECT g FROM grp AS g WHERE no > $1 ORDER BY no),
ARRAY(SELECT l FROM lines AS l WHERE no IN (SELECT unnest(lines) FROM grp WHERE no > $1)),
ARRAY(SELECT r FROM range AS r WHERE id IN (SELECT unnest(ranges) FROM grp WHERE no > $1)),
ARRAY(SELECT b FROM block AS b WHERE id = ANY(ARRAY(
    SELECT id FROM (
        SELECT id, sum(length(data)) OVER (ORDER BY id) AS upto FROM block
        WHERE id = ANY(ARRAY(SELECT unnest(blocks) FROM grp WHERE no > $1))) AS new
    WHERE upto <= $2)))
"""
CHANGED = f"SELECT {_CHANGED}"
# The same with where the state stands, of one moment.
HEAD_CHANGED = f"SELECT {_HEAD}, {_CHANGED} {_NEWEST}"
FORGET_GROUPS = "DELETE FROM grp WHERE no <= $1"
RECORDS = "SELECT body FROM record"
RECORD = "SELECT body FROM record WHERE kind = $1 AND id = $2"
PUT_RECORD = """
INSERT INTO record VALUES ($1, $2, $3) ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body
"""
DROP_RECORD = "DELETE FROM record WHERE kind = $1 AND id = $2"
LINES = "SELECT * FROM lines ORDER BY no"
RANGES = "SELECT id, until_ms, at_ms, count, claim, done FROM range ORDER BY id"
LEASED_GROUPS = """
SELECT (id >> 42)::int, grp, count(*) FROM delivery
WHERE state BETWEEN 1 AND 2 AND state = 1 AND grp IS NOT NULL GROUP BY 1, 2
"""
LEASED_GROUPS_OF = """
SELECT grp, count(*) FROM delivery
WHERE id >= $1 AND id < $2 AND state = 1 AND grp IS NOT NULL GROUP BY 1
"""
# Everything of a line that is deleted, but for its blocks.
EMPTY = (
    "DELETE FROM range WHERE id >= $1 AND id < $2",
    "DELETE FROM delivery WHERE id >= $1 AND id < $2",
    "DELETE FROM push WHERE id >= $1 AND id < $2",
)

_LINE_COLUMNS = """queue, listener, tail, cursor, count, bytes, fresh, again, leased, delayed,
    exhausted, gone, renamed, missed, acknowledged, last_success_ms, last_failure_ms, dropped,
    spent, pulled, expired"""
_NEW_LINE = ", ".join(f"(new).{column.strip()}" for column in _LINE_COLUMNS.split(","))
_BLOCK_COLUMNS = "at_ms, flags, only_line, count, last, meta_sum, data_sum, meta, data"
_BLOCK_EXCLUDED = ", ".join(f"excluded.{column.strip()}" for column in _BLOCK_COLUMNS.split(","))


_IN_TURN = "WHERE EXISTS (SELECT FROM turn)"


def _placed(table: str, key: str, rows: str) -> str:
    """Rows, and where those of these keys are now: see `_NEWEST`."""
    keys = key.split(", ")
    of_new = ", ".join(f"new.{column}" for column in keys)
    order = ", ".join(f"{column} DESC" for column in keys)
    return f"""SELECT new, (
        SELECT ctid FROM {table} WHERE ({key}) >= ({of_new}) AND ({key}) <= ({of_new})
        ORDER BY {order} LIMIT 1) AS place
    FROM unnest({rows}::{table}[]) AS new {_IN_TURN}"""


# The rows that nearly every group writes, in one round trip, if no group has come since $15;
# otherwise nothing.
APPLY = f"""
WITH turn AS (
    UPDATE head SET grp = $8, journal_last = $9, journal_bytes = $10, journal_ms = $11,
        journal_first = $12, journal_start_bytes = $13, next_due_ms = $14
    WHERE grp = $15 AND ctid = (SELECT ctid {_NEWEST}) RETURNING grp
), lines_placed AS MATERIALIZED (
    {_placed("lines", "no", "$1")}
), put_lines AS (
    UPDATE lines SET ({_LINE_COLUMNS}) = ROW ({_NEW_LINE}) FROM lines_placed
    WHERE lines.ctid = place
), new_lines AS (
    INSERT INTO lines SELECT (new).* FROM lines_placed WHERE place IS NULL
), blocks AS (
    INSERT INTO block SELECT * FROM unnest($2::block[]) {_IN_TURN}
    ON CONFLICT (id) DO UPDATE SET ({_BLOCK_COLUMNS}) = ROW ({_BLOCK_EXCLUDED})
), ranges AS (
    INSERT INTO range SELECT * FROM unnest($3::range[]) {_IN_TURN}
    ON CONFLICT (id) DO UPDATE SET (until_ms, at_ms, count, claim, done) =
        ROW (excluded.until_ms, excluded.at_ms, excluded.count, excluded.claim, excluded.done)
), ended AS (
    DELETE FROM range WHERE id IN (SELECT unnest($4::bigint[]) {_IN_TURN})
), packets AS (
    INSERT INTO packet SELECT * FROM unnest($5::packet[]) {_IN_TURN}
), minutes_placed AS MATERIALIZED (
    {_placed("minute", "minute, queue, kind", "$6")}
), put_minutes AS (
    UPDATE minute SET count = count + (new).count, bytes = bytes + (new).bytes
    FROM minutes_placed WHERE minute.ctid = place
), new_minutes AS (
    INSERT INTO minute SELECT (new).* FROM minutes_placed WHERE place IS NULL
), groups AS (
    INSERT INTO grp SELECT * FROM unnest($7::grp[]) {_IN_TURN}
)
SELECT FROM turn
"""

# --- blocks ---

BLOCK_AT = "SELECT id, count FROM block WHERE id > $1 AND id <= $2 ORDER BY id DESC LIMIT 1"
BLOCKS = """
SELECT id, at_ms, flags, only_line, count, last, meta_sum, data_sum, meta, data
FROM block WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3
"""
BLOCK_METAS = """
SELECT id, at_ms, flags, only_line, count, last, meta_sum, data_sum, meta, NULL::bytea
FROM block WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3
"""
BLOCK_SIZES = """
SELECT count, length(data) FROM block WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3
"""


class PostgresSearch(NamedTuple):
    """A search in the order of sequences, or backwards."""

    part: str
    holding: str


def _search(order: str) -> PostgresSearch:
    return PostgresSearch(
        # The ends of the blocks that are looked at next, by their number and their bytes.
        part=f"""
SELECT min(id), max(id + count - 1) FROM (
    SELECT id, count, sum(size) OVER (ORDER BY id {order}) - size AS before FROM (
        SELECT id, count, length(data) AS size FROM block
        WHERE id >= $1 AND id <= $2 ORDER BY id {order} LIMIT $3) AS next) AS summed
WHERE before < $4
""",
        holding=f"""
SELECT id, at_ms, flags, only_line, count, last, meta_sum, data_sum, meta, data FROM block
WHERE id >= $1 AND id <= $2 AND (
    position($3::bytea IN data) > 0 OR position($4::bytea IN data) > 0
    OR position($5::bytea IN meta) > 0 OR position($6::bytea IN meta) > 0
    OR ($7::bigint >= id AND $7 < id + count)
    OR ($8::bytea IS NOT NULL AND EXISTS (
        SELECT 1 FROM fact WHERE line = $9 AND kind = 'name'
        AND key >= convert_to(lpad(to_hex(id & $10), 11, '0'), 'UTF8')
        AND key < convert_to(lpad(to_hex((id & $10) + count), 11, '0'), 'UTF8')
        AND position($8 IN value) > 0)))
ORDER BY id {order} LIMIT $11
""",
    )


SEARCH = _search("")
SEARCH_BACKWARDS = _search("DESC")
BLOCKS_OF = """
SELECT id, at_ms, flags, only_line, count, last, meta_sum, data_sum, meta, data
FROM block WHERE last = $1 ORDER BY id
"""
PUT_BLOCK = "INSERT INTO block VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
DROP_BLOCKS = "DELETE FROM block WHERE id = ANY($1)"
LOOSE = """
SELECT id, count, last FROM block WHERE last > $1 AND last <= $2
ORDER BY last, id LIMIT $3
"""
PUT_EXPIRY = """
INSERT INTO expiry VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET at_ms = excluded.at_ms
"""
DROP_EXPIRIES = "DELETE FROM expiry WHERE id = ANY($1)"
EXPIRED = "SELECT at_ms, id FROM expiry WHERE at_ms <= $1 ORDER BY at_ms, id LIMIT $2"

# --- deliveries ---

_COLUMNS = """id, state, attempt, due_ms, published_ms, first_ms, last_ms, size, own_id, expires_ms,
    grp, follows, claim, report"""


class DeliveryTable(NamedTuple):
    """Statements for one of the two tables of deliveries."""

    insert: str
    update: str
    delete: str
    at: str
    ready: str
    between: str
    between_all: str
    due: str


def _table(name: str) -> DeliveryTable:
    select = f"SELECT {_COLUMNS} FROM {name}"
    return DeliveryTable(
        insert=f"INSERT INTO {name} SELECT * FROM unnest($1::{name}[])",
        update=f"""UPDATE {name} AS d SET state = new.state, attempt = new.attempt,
            due_ms = new.due_ms, first_ms = new.first_ms, last_ms = new.last_ms,
            follows = new.follows, claim = new.claim, report = new.report
            FROM unnest($1::{name}[]) AS new WHERE d.id = new.id""",
        delete=f"DELETE FROM {name} WHERE id = ANY($1)",
        at=f"{select} WHERE id = ANY($1)",
        ready=f"{select} WHERE state = 0 AND id > $1 AND id < $2 ORDER BY id LIMIT $3",
        between=f"{select} WHERE state >= 0 AND id >= $1 AND id <= $2 ORDER BY id LIMIT $3",
        between_all=f"{select} WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3",
        due=f"""{select} WHERE state BETWEEN 1 AND 2 AND due_ms <= $1
            ORDER BY due_ms, id LIMIT $2""",
    )


DELIVERIES = _table("delivery")
PUSHES = _table("push")
GROUP = f"""
SELECT {_COLUMNS} FROM delivery WHERE grp = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4
"""
READY_GROUPS = f"""
SELECT {", ".join(f"d.{column.strip()}" for column in _COLUMNS.split(","))} FROM (
    SELECT grp, id FROM delivery
    WHERE state = 0 AND id > $1 AND id < $2 ORDER BY id LIMIT $3) AS head
CROSS JOIN LATERAL (
    SELECT * FROM delivery
    WHERE grp = head.grp AND id > $1 AND id < $2 ORDER BY id LIMIT $3) AS d
ORDER BY head.id, d.id LIMIT $3
"""
HEADS = f"""
SELECT {", ".join(f"d.{column.strip()}" for column in _COLUMNS.split(","))}
FROM unnest($3::bytea[]) AS name
CROSS JOIN LATERAL (
    SELECT * FROM delivery
    WHERE grp = name AND id > $1 AND id < $2 ORDER BY id LIMIT 1) AS d
ORDER BY d.id
"""
CLAIMED = f"""
SELECT {_COLUMNS} FROM delivery WHERE claim = $1 AND claim > 0 ORDER BY id LIMIT $2
"""
OPEN = f"""
SELECT {_COLUMNS} FROM push
WHERE state BETWEEN 0 AND 2 AND id > $1 AND id < $2 ORDER BY id LIMIT $3
"""
MISSED = f"""
SELECT {_COLUMNS} FROM push
WHERE report IS NOT NULL AND state >= 0 AND id > $1 AND id < $2 ORDER BY id DESC LIMIT $3
"""
DROP_SETTLED = "DELETE FROM push WHERE id >= $1 AND id <= $2"

# --- facts ---

FACTS = "SELECT key, until_ms, value FROM fact WHERE line = $1 AND kind = $2 AND key = ANY($3)"
FACTS_BELOW = """
SELECT key, until_ms, value FROM fact
WHERE line = $1 AND kind = $2 AND key >= $3 AND key < $4
"""
PUT_FACT = """
INSERT INTO fact VALUES ($1, $2, $3, $4, $5) ON CONFLICT (line, kind, key)
DO UPDATE SET until_ms = excluded.until_ms, value = excluded.value
"""
DROP_FACT = "DELETE FROM fact WHERE line = $1 AND kind = $2 AND key = $3"
DROP_FACTS = "DELETE FROM fact WHERE line = $1"
DROP_FACTS_BETWEEN = "DELETE FROM fact WHERE line = $1 AND kind = $2 AND key >= $3 AND key < $4"
FORGET_FACTS = """
DELETE FROM fact WHERE (line, kind, key) IN (
    SELECT line, kind, key FROM fact WHERE until_ms <= $1 LIMIT $2)
"""

# --- the journal ---

PACKETS = "SELECT * FROM packet WHERE last > $1 ORDER BY last LIMIT $2"
PACKET_TIME = "SELECT last, at_ms FROM packet WHERE last > $1 ORDER BY last LIMIT 1"
LAST_OFFSET = "SELECT max(last) FROM packet"
OLDEST_PACKET = "SELECT last - count + 1, before_bytes FROM packet ORDER BY last LIMIT 1"
LAST_OLD = """
SELECT max(last) FROM (
    SELECT last, at_ms FROM packet
    WHERE last <= $1 AND last < (SELECT max(last) FROM packet) ORDER BY last LIMIT $2) AS old
WHERE $3::bigint IS NULL OR at_ms < $3
"""
TRIM = "DELETE FROM packet WHERE last <= $1"

# --- duties ---

HOLD = """
INSERT INTO duty
SELECT name, $2, clock_timestamp() + interval '5 s', 1 FROM unnest($1::text[]) AS name
ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until,
    fence = duty.fence + (duty.token <> excluded.token)::int
WHERE duty.token = excluded.token OR duty.until < clock_timestamp()
RETURNING name, fence
"""
NAME_DUTIES = """
INSERT INTO duty SELECT name, 0, '-infinity', 0 FROM unnest($1::text[]) AS name
WHERE NOT EXISTS (SELECT FROM duty WHERE duty.name = name.name)
ON CONFLICT DO NOTHING
"""
# A node keeps at most its fair part of the duties, lets go of more, and takes what is free.
HOLD_EVENLY = f"""
WITH parts AS (
    SELECT ceil(cardinality($1::text[]) / count(*)::float)::int AS fair FROM (
        SELECT token FROM node WHERE at > clock_timestamp() - interval '{GONE_S} s'
        UNION SELECT $2::bigint) AS living
), mine AS (
    SELECT name FROM duty WHERE name = ANY($1) AND token = $2 AND until > clock_timestamp()
    ORDER BY name LIMIT (SELECT fair FROM parts) FOR UPDATE
), free AS (
    SELECT name FROM duty WHERE name = ANY($1) AND until <= clock_timestamp()
    ORDER BY name LIMIT (SELECT greatest(0, fair - (SELECT count(*) FROM mine)) FROM parts)
    FOR UPDATE SKIP LOCKED
), let_go AS (
    UPDATE duty SET until = '-infinity' WHERE name = ANY($1) AND token = $2
    AND until > clock_timestamp() AND name NOT IN (SELECT name FROM mine)
)
UPDATE duty SET token = $2, until = clock_timestamp() + interval '5 s',
    fence = fence + (token <> $2)::int
WHERE name IN (SELECT name FROM mine UNION ALL SELECT name FROM free)
RETURNING name, fence
"""
# Nobody gets a duty while a group writes under its fence.
HELD = "SELECT name, fence FROM duty WHERE token = $1 AND name = ANY($2) FOR SHARE"
LET_GO = "UPDATE duty SET until = '-infinity' WHERE token = $1"

# --- numbers of the past ---

PUT_LEVEL = "INSERT INTO level VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
TALLIES = """
SELECT minute, queue, kind, count, bytes FROM minute
WHERE tenant = $1 AND minute >= $2 AND minute < $3 ORDER BY minute, queue, kind
"""
TALLIES_OF = """
SELECT minute, queue, kind, count, bytes FROM minute
WHERE queue = $1 AND tenant = $2 AND minute >= $3 AND minute < $4 ORDER BY minute, kind
"""
LEVELS = """
SELECT minute, count, leased, delayed FROM level WHERE queue = $1 AND minute >= $2 ORDER BY minute
"""
FORGET_LEVELS = """
DELETE FROM level WHERE (queue, minute) IN (
    SELECT queue, minute FROM level WHERE minute < $1 LIMIT $2)
"""
FORGET_MINUTES = """
DELETE FROM minute WHERE (minute, queue, kind) IN (
    SELECT minute, queue, kind FROM minute WHERE minute < $1 LIMIT $2)
"""
ROLLED = "SELECT rolled FROM meta"
# Minutes become hours; the minutes of the same hour are added up first, since one statement
# changes a row once.
SUM_UP = """
WITH old AS (
    DELETE FROM minute WHERE (minute, queue, kind) IN (
        SELECT minute, queue, kind FROM minute
        WHERE minute >= $1 AND minute < $2 AND minute % 60 > 0
        ORDER BY minute, queue, kind LIMIT $3)
    RETURNING minute, queue, kind, tenant, count, bytes
), summed AS (
    INSERT INTO minute
    SELECT minute - minute % 60, queue, kind, min(tenant), sum(count), sum(bytes) FROM old
    GROUP BY 1, 2, 3
    ON CONFLICT (minute, queue, kind) DO UPDATE
    SET count = minute.count + excluded.count, bytes = minute.bytes + excluded.bytes
)
SELECT count(*) FROM old
"""
SAVE_ROLLED = "UPDATE meta SET rolled = $1"
