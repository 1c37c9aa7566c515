-- Tells the drafts that are stored under a key from others. NULL: nobody knows, so nothing is
-- compared; of drafts that were stored before this column was there, too.
ALTER TABLE rows_stored ADD COLUMN mark BLOB;
