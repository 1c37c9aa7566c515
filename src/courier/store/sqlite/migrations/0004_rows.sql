-- How many of the drafts of a key of `publish_rows` are stored: numbers 0 .. count - 1.
CREATE TABLE rows_stored (
    subscription INTEGER NOT NULL,
    key TEXT NOT NULL,
    count INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (subscription, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX rows_stored_until ON rows_stored (until_ms);
