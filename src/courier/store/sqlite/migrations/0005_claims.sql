-- Messages that were leased together under a name. It is intact while `count` deliveries bear its
-- number; one that is leased no longer bears none. Known until `until_ms`.
CREATE TABLE claim (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    acked INTEGER NOT NULL DEFAULT 0,
    until_ms INTEGER NOT NULL,
    UNIQUE (subscription, name)
) STRICT;
CREATE INDEX claim_until ON claim (until_ms);

ALTER TABLE delivery ADD COLUMN claim INTEGER;
CREATE INDEX delivery_claim ON delivery (claim) WHERE claim IS NOT NULL;
