-- An index entry holds no more than 2,704 bytes, and needs may be longer.
ALTER TABLE agq.lanes DROP CONSTRAINT lanes_queue_needs_key;
CREATE UNIQUE INDEX lanes_by_needs ON agq.lanes (queue, sha256(needs));
-- Lanes without jobs are forgotten, and their numbers are used again after the last one.
ALTER TABLE agq.lanes ALTER COLUMN lane SET CYCLE;
-- Whether all jobs of a lane are in agq.lane_counts. Jobs that had ended before there were counts are
-- not, so nobody can say when the last of them is gone: their lanes stay.
ALTER TABLE agq.lanes ADD COLUMN is_counted boolean NOT NULL DEFAULT false;
ALTER TABLE agq.lanes ALTER COLUMN is_counted SET DEFAULT true;
