-- Running jobs that their workers have reported: a worker claims jobs ahead. Of jobs that run while this is added, the end may count
-- below 0, which is shown as 0.
ALTER TABLE agq.tallies ADD COLUMN started bigint NOT NULL DEFAULT 0;
