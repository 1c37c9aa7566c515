-- The delay a message was published with (on a FIFO queue only one of its own), and the name of
-- the key that its body is encrypted with.
ALTER TABLE message ADD COLUMN delay_ms INTEGER;
ALTER TABLE message ADD COLUMN sealed TEXT;
CREATE INDEX message_group ON message (grp) WHERE grp IS NOT NULL;

-- A group of a FIFO queue that holds messages: how many of them are leased, and its first one
-- (id = no << 43 | seq). Ready: none is leased, and the first is not delayed. All messages of
-- FIFO queues lie in lane 1.
CREATE TABLE grp (
    no INTEGER NOT NULL,
    name TEXT NOT NULL,
    leased INTEGER NOT NULL,
    head INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    PRIMARY KEY (no, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX grp_ready ON grp (head) WHERE ready = 1;

-- Tallies also count what is no event, under the id of an exchange or a tenant, and every one has
-- its tenant. What lies before `rolled` has been summed up by the hour.
ALTER TABLE minute ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
DELETE FROM minute WHERE queue = '';
UPDATE minute SET tenant = coalesce(
    (SELECT json_extract(CAST(body AS TEXT), '$.tenant') FROM record
        WHERE kind = 'Queue' AND id = minute.queue),
    (SELECT json_extract(CAST(dropped AS TEXT), '$.tenant') FROM subscription
        WHERE queue = minute.queue AND dropped IS NOT NULL),
    ''
);
CREATE INDEX minute_tenant ON minute (tenant, minute);
CREATE INDEX minute_queue ON minute (queue, minute);
ALTER TABLE meta ADD COLUMN rolled INTEGER NOT NULL DEFAULT 0;

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

-- Kept in the order of ids that publishers choose, it cost a page for each message published.
DROP INDEX message_own_id;
