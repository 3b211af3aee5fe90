-- Ends of jobs with limits: the sum over all shards. The document of a limit counts the starts as 'active', and the number of
-- running jobs is 'active' less this sum. Each node writes a shard of its own, so that the end of a job does not wait for a
-- claim of another node, which locks the document.
CREATE TABLE agq.limit_ends (
    limit_key text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    ended bigint NOT NULL,
    PRIMARY KEY (limit_key, shard)
) WITH (fillfactor = 50);
