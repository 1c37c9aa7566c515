-- The number of the oldest schema whose servers can run on these tables, beside newer ones.
ALTER TABLE version ADD COLUMN oldest integer NOT NULL DEFAULT 3;
