-- Checksums of the rows that are mirrored in memory, see `sums.py`. NULL: not summed yet.
ALTER TABLE record ADD COLUMN sum INTEGER;
ALTER TABLE line ADD COLUMN sum INTEGER;
ALTER TABLE range ADD COLUMN sum INTEGER;
