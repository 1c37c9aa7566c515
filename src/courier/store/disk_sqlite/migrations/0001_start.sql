-- A key is line << 42 | sequence, see `engine/layout.py`.

-- What the store is: made once, when the file is.
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL,
    secret BLOB NOT NULL,
    checked_ms INTEGER NOT NULL DEFAULT 0,
    rolled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Settings as JSON. Mirrored in memory.
CREATE TABLE record (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- Lines and their counters; that of pullers has no listener. `dropped` holds the record of a deleted
-- queue or listener until the last of its rows is gone. Mirrored in memory.
CREATE TABLE line (
    no INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    listener TEXT NOT NULL,
    tail INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    fresh INTEGER NOT NULL,
    again INTEGER NOT NULL,
    leased INTEGER NOT NULL,
    delayed INTEGER NOT NULL,
    exhausted INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    renamed INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    last_success_ms INTEGER NOT NULL,
    last_failure_ms INTEGER NOT NULL,
    dropped BLOB,
    spent INTEGER NOT NULL,
    pulled INTEGER NOT NULL,
    expired INTEGER NOT NULL
) STRICT;

-- Messages `id` .. `id + count - 1`, bodies and all. `last` names the packet that tells of them. The
-- long columns come last: a read of only the others does not touch their pages.
CREATE TABLE block (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    only INTEGER NOT NULL,
    count INTEGER NOT NULL,
    last INTEGER NOT NULL,
    meta_sum INTEGER NOT NULL,
    data_sum INTEGER NOT NULL,
    meta BLOB NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX block_last ON block (last);

-- Blocks in which messages have expiries of their own, and the first of these.
CREATE TABLE expiry (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX expiry_at ON expiry (at_ms);

-- Messages `id` .. `id + count - 1` of a line, leased together for the first time. A bit of `done`
-- (NULL: none is set) says that a message is done, or has a row of its own.
CREATE TABLE range (
    id INTEGER PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    count INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    done BLOB
) STRICT;

-- What is neither beyond the cursor nor in a range, of queues' lines.
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    published_ms INTEGER NOT NULL,
    first_ms INTEGER,
    last_ms INTEGER,
    size INTEGER NOT NULL,
    own_id TEXT,
    expires_ms INTEGER,
    grp TEXT,
    follows INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    report BLOB
) STRICT;
CREATE INDEX delivery_due ON delivery (due_ms) WHERE state BETWEEN 1 AND 2;
CREATE INDEX delivery_ready ON delivery (id) WHERE state = 0;
CREATE INDEX delivery_group ON delivery (grp) WHERE grp IS NOT NULL;
CREATE INDEX delivery_claim ON delivery (claim) WHERE claim > 0;

-- The same of listeners' lines. Acknowledged pushes are kept while their message is.
CREATE TABLE push (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    published_ms INTEGER NOT NULL,
    first_ms INTEGER,
    last_ms INTEGER,
    size INTEGER NOT NULL,
    own_id TEXT,
    expires_ms INTEGER,
    grp TEXT,
    follows INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    report BLOB
) STRICT;
CREATE INDEX push_due ON push (due_ms) WHERE state BETWEEN 1 AND 2;
CREATE INDEX push_open ON push (id) WHERE state BETWEEN 0 AND 2;
CREATE INDEX push_ready ON push (id) WHERE state = 0;
CREATE INDEX push_missed ON push (id) WHERE report IS NOT NULL AND state >= 0;

-- Publish keys, numbered rows, claims and names: known under a key for some time.
CREATE TABLE fact (
    line INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (line, kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_until ON fact (until_ms);

-- All events of one group. `total_bytes`: of all packets and the blocks they tell of since the
-- beginning, this one included, so that the journal's size is a subtraction.
CREATE TABLE packet (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    before_bytes INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Events per minute; what lies before `meta.rolled` has been summed up by the hour.
CREATE TABLE minute (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX minute_tenant ON minute (tenant, minute);
CREATE INDEX minute_queue ON minute (queue, minute);

-- What a queue held at the end of a minute, written when it first changes in a later one.
CREATE TABLE level (
    queue TEXT NOT NULL,
    minute INTEGER NOT NULL,
    count INTEGER NOT NULL,
    leased INTEGER NOT NULL,
    delayed INTEGER NOT NULL,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;
CREATE INDEX level_minute ON level (minute);
