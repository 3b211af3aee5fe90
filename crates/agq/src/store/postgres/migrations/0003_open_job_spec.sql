-- What is kept of things that have no record of their own, JSON.
CREATE TABLE agq.notes (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    json text NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70);

-- How many jobs of a lane are in each state: the sum over all shards, as with tallies.
CREATE TABLE agq.lane_counts (
    lane integer NOT NULL,
    shard smallint NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (lane, shard)
) WITH (fillfactor = 50);
-- What is there already: whether a job that waits for a time does so after a failure is in its record alone, and so is the lane of one
-- that has ended.
INSERT INTO agq.lane_counts SELECT lane, 0, ARRAY[0, count(*) FILTER (WHERE status = 0 AND NOT is_ready),
    count(*) FILTER (WHERE is_ready), count(*) FILTER (WHERE status = 1), 0, 0, 0, 0] FROM agq.jobs GROUP BY lane;
