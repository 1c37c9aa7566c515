-- Numbers that fit in one integer key: 20 bits of subscription number, 1 bit of lane, 42 bits of
-- sequence. A queue's messages therefore lie side by side, in order, in the table's own b-tree.

-- What the store is: made once, when the file is.
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL,
    secret BLOB NOT NULL,
    checked_ms INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Settings: tenants, keys, queues, consumers and so on, as JSON. Mirrored in memory.
CREATE TABLE record (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- A line of delivery and its counters; the one that all pullers share has no listener. Messages
-- of lane 0 beyond `cursor` have never been handed out and need no row in `delivery`. `dropped`
-- holds the queue's record while its messages are being removed.
CREATE TABLE subscription (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    listener TEXT NOT NULL DEFAULT '',
    tail INTEGER NOT NULL DEFAULT 0,
    cursor INTEGER NOT NULL DEFAULT 0,
    count INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    leased INTEGER NOT NULL DEFAULT 0,
    delayed INTEGER NOT NULL DEFAULT 0,
    again INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    dropped BLOB,
    UNIQUE (queue, listener)
) STRICT;

-- id = no << 43 | lane << 42 | seq. Lane 1 is for messages that the cursor must not meet: those
-- published with a delay.
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    published_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    own_id TEXT,
    headers BLOB,
    grp TEXT,
    expires_ms INTEGER,
    origin BLOB,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX message_own_id ON message (own_id) WHERE own_id IS NOT NULL;
CREATE INDEX message_expires ON message (expires_ms) WHERE expires_ms IS NOT NULL;

-- id = no << 43 | seq. State 0: ready again; 1: leased until due_ms; 2: delayed until due_ms.
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    published_ms INTEGER NOT NULL,
    first_ms INTEGER,
    last_ms INTEGER,
    size INTEGER NOT NULL,
    own_id TEXT
) STRICT;
CREATE INDEX delivery_due ON delivery (due_ms) WHERE state > 0;
CREATE INDEX delivery_ready ON delivery (id) WHERE state = 0;

-- Publishes that must not happen twice.
CREATE TABLE once (
    subscription INTEGER NOT NULL,
    key TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (subscription, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX once_until ON once (until_ms);

-- All events of one transaction in one row: offsets last - count + 1 .. last. `total_bytes` is
-- the sum of all `data` ever written, so the journal's size is a subtraction.
CREATE TABLE journal (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Events per minute, for statistics that outlive the journal.
CREATE TABLE minute (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    count INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, kind)
) STRICT, WITHOUT ROWID;
