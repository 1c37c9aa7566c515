-- A key is line << 42 | sequence, see `engine/layout.py`. What callers choose (ids of their own,
-- groups, keys) is bytea: a text of PostgreSQL cannot hold every character.

-- What the store is: made once, with the first row.
CREATE TABLE meta (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    epoch text NOT NULL,
    secret bytea NOT NULL,
    rolled bigint NOT NULL DEFAULT 0
);

-- Where the state stands: who changes it locks this row first, so that one group follows the other
-- over all nodes. `grp` is the last of them. `next_due_ms`: no row comes due before.
CREATE TABLE head (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    grp bigint NOT NULL,
    journal_last bigint NOT NULL,
    journal_bytes bigint NOT NULL,
    journal_ms bigint NOT NULL,
    journal_first bigint NOT NULL,
    journal_start_bytes bigint NOT NULL,
    next_due_ms bigint NOT NULL,
    barriers bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- What each of the last groups changed of all that nodes keep in memory. `token` says whose it was.
CREATE TABLE grp (
    no bigint PRIMARY KEY,
    token bigint NOT NULL,
    lines integer[] NOT NULL,
    ranges bigint[] NOT NULL,
    blocks bigint[] NOT NULL,
    records text[] NOT NULL
);

-- Nodes that run, when they last said so, and up to which group they have seen the settings.
CREATE TABLE node (
    token bigint PRIMARY KEY,
    seen bigint NOT NULL,
    at timestamptz NOT NULL
) WITH (fillfactor = 20);

-- What must be done by one node, by which it is, and until when unless that asks again.
CREATE TABLE duty (
    name text PRIMARY KEY,
    token bigint NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 20);

-- Settings as JSON. Mirrored in memory.
CREATE TABLE record (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (kind, id)
);

-- Lines and their counters; that of pullers has no listener. `dropped` holds the record of a deleted
-- queue or listener until the last of its rows is gone. Mirrored in memory. Every change is HOT.
CREATE TABLE lines (
    no integer PRIMARY KEY,
    queue text NOT NULL,
    listener text NOT NULL,
    tail bigint NOT NULL,
    cursor bigint NOT NULL,
    count bigint NOT NULL,
    bytes bigint NOT NULL,
    fresh bigint NOT NULL,
    again bigint NOT NULL,
    leased bigint NOT NULL,
    delayed bigint NOT NULL,
    exhausted bigint NOT NULL,
    gone bigint NOT NULL,
    renamed bigint NOT NULL,
    missed bigint NOT NULL,
    acknowledged bigint NOT NULL,
    last_success_ms bigint NOT NULL,
    last_failure_ms bigint NOT NULL,
    dropped bytea,
    spent bigint NOT NULL,
    pulled bigint NOT NULL,
    expired bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- Messages `id` .. `id + count - 1`, bodies and all. `last` names the packet that tells of them.
CREATE TABLE block (
    id bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    flags bigint NOT NULL,
    only_line bigint NOT NULL,
    count bigint NOT NULL,
    last bigint NOT NULL,
    meta_sum bigint NOT NULL,
    data_sum bigint NOT NULL,
    meta bytea NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX block_last ON block (last);
ALTER TABLE block ALTER COLUMN data SET STORAGE EXTERNAL;

-- Blocks in which messages have expiries of their own, and the first of these.
CREATE TABLE expiry (
    id bigint PRIMARY KEY,
    at_ms bigint NOT NULL
);
CREATE INDEX expiry_at ON expiry (at_ms);

-- Messages `id` .. `id + count - 1` of a line, leased together for the first time. A bit of `done`
-- (NULL: none is set) says that a message is done, or has a row of its own.
CREATE TABLE range (
    id bigint PRIMARY KEY,
    until_ms bigint NOT NULL,
    at_ms bigint NOT NULL,
    count bigint NOT NULL,
    claim bigint NOT NULL,
    done bytea
) WITH (fillfactor = 50);

-- What is neither beyond the cursor nor in a range, of queues' lines.
CREATE TABLE delivery (
    id bigint PRIMARY KEY,
    state bigint NOT NULL,
    attempt bigint NOT NULL,
    due_ms bigint NOT NULL,
    published_ms bigint NOT NULL,
    first_ms bigint,
    last_ms bigint,
    size bigint NOT NULL,
    own_id bytea,
    expires_ms bigint,
    grp bytea,
    follows bigint NOT NULL,
    claim bigint NOT NULL,
    report bytea
) WITH (fillfactor = 70);
CREATE INDEX delivery_due ON delivery (due_ms) WHERE state BETWEEN 1 AND 2;
CREATE INDEX delivery_ready ON delivery (id) WHERE state = 0;
CREATE INDEX delivery_group ON delivery (grp, id) WHERE grp IS NOT NULL;
CREATE INDEX delivery_claim ON delivery (claim) WHERE claim > 0;

-- The same of listeners' lines. Acknowledged pushes are kept while their message is.
CREATE TABLE push (LIKE delivery INCLUDING DEFAULTS INCLUDING STORAGE, PRIMARY KEY (id))
    WITH (fillfactor = 70);
CREATE INDEX push_due ON push (due_ms) WHERE state BETWEEN 1 AND 2;
CREATE INDEX push_open ON push (id) WHERE state BETWEEN 0 AND 2;
CREATE INDEX push_ready ON push (id) WHERE state = 0;
CREATE INDEX push_missed ON push (id) WHERE report IS NOT NULL AND state >= 0;

-- Publish keys, numbered rows, claims and names: known under a key for some time.
CREATE TABLE fact (
    line integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    until_ms bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (line, kind, key)
);
CREATE INDEX fact_until ON fact (until_ms);

-- All events of one group. `total_bytes`: of all packets and the blocks they tell of since the
-- beginning, this one included, so that the journal's size is a subtraction.
CREATE TABLE packet (
    last bigint PRIMARY KEY,
    count bigint NOT NULL,
    at_ms bigint NOT NULL,
    before_bytes bigint NOT NULL,
    total_bytes bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE packet ALTER COLUMN data SET STORAGE EXTERNAL;

-- Events per minute; what lies before `meta.rolled` has been summed up by the hour.
CREATE TABLE minute (
    minute bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (minute, queue, kind)
) WITH (fillfactor = 50);
CREATE INDEX minute_tenant ON minute (tenant, minute);
CREATE INDEX minute_queue ON minute (queue, minute);

-- What a queue held at the end of a minute, written when it first changes in a later one.
CREATE TABLE level (
    queue text COLLATE "C" NOT NULL,
    minute bigint NOT NULL,
    count bigint NOT NULL,
    leased bigint NOT NULL,
    delayed bigint NOT NULL,
    PRIMARY KEY (queue, minute)
);
CREATE INDEX level_minute ON level (minute);
