-- A listener's line is a subscription too, and has the listener's id: `count` are its open pushes
-- and `leased` those in flight, and the columns from `exhausted` on are only for it. `dropped`
-- holds the listener's record while its pushes are being ended. `kept` is for a queue's own line:
-- how many messages are kept for their pushes.
ALTER TABLE subscription ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription ADD COLUMN exhausted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription ADD COLUMN acknowledged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription ADD COLUMN last_success_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscription ADD COLUMN last_failure_ms INTEGER NOT NULL DEFAULT 0;

-- One message on its way to one listener: id = no << 43 | seq, with the number of the listener's
-- line. State 0: ready; 1: in flight until due_ms; 2: waits until due_ms; -1: acknowledged;
-- -2: exhausted. The last attempt whose outcome is known left `status` and what follows it.
-- What does not change of the message is repeated here, so that only a hand-out reads it.
CREATE TABLE push (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    published_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    own_id TEXT,
    expires_ms INTEGER,
    first_ms INTEGER,
    last_ms INTEGER,
    status INTEGER,
    error TEXT,
    duration_ms INTEGER,
    answer BLOB
) STRICT;
CREATE INDEX push_ready ON push (id) WHERE state = 0;
CREATE INDEX push_due ON push (due_ms) WHERE state > 0;
-- An ordered listener asks for the first that is open.
CREATE INDEX push_open ON push (id) WHERE state >= 0;
CREATE INDEX push_missed ON push (id) WHERE status IS NOT NULL AND state <> -1;

-- A message that pullers are done with and that is kept for its pushes lies in a lane before all
-- others: id = no << 43 | seq, minus 2^63. So no pull meets it, and no number of its queue.
