-- Grows whenever another node gets the duty: what is written under an old one is refused.
ALTER TABLE duty ADD COLUMN fence bigint NOT NULL DEFAULT 0;
