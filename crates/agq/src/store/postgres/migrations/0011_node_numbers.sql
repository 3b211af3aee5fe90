-- Number of a node among those that are alive. The node writes the shards that belong to this number, and the next node with the
-- number writes them again. So the number of shards depends on how many nodes ran at once, not on how often nodes were started.
ALTER TABLE agq.instances ADD COLUMN number smallint;
