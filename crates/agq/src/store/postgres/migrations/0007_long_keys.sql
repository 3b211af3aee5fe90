-- An index entry holds no more than 2,704 bytes, and keys and members may be longer: what is unique
-- is their SHA-256. agq.keys is not written anew, its indexes are; the other two tables are.
ALTER TABLE agq.keys DROP CONSTRAINT keys_pkey, DROP CONSTRAINT keys_number_key, ADD PRIMARY KEY (number);
ALTER TABLE agq.keys ALTER COLUMN key SET NOT NULL;
CREATE UNIQUE INDEX keys_by_digest ON agq.keys (sha256(key));
DROP INDEX agq.keys_expiring;
CREATE INDEX keys_expiring ON agq.keys (expires_at, substr(key, 1, 1024)) WHERE expires_at IS NOT NULL;
-- Elements and members name their key by its digest, because a long key would be in each of them.
-- The new name of the column keeps nodes of earlier versions from them.
ALTER TABLE agq.list_items ALTER COLUMN key TYPE bytea USING sha256(key);
ALTER TABLE agq.list_items RENAME COLUMN key TO key_digest;
DROP INDEX agq.scores_in_order;
ALTER TABLE agq.scores DROP CONSTRAINT scores_pkey, ALTER COLUMN key TYPE bytea USING sha256(key),
    ALTER COLUMN member SET NOT NULL,
    ADD COLUMN member_digest bytea NOT NULL GENERATED ALWAYS AS (sha256(member)) STORED;
ALTER TABLE agq.scores RENAME COLUMN key TO key_digest;
ALTER TABLE agq.scores ADD PRIMARY KEY (key_digest, member_digest);
-- Members that begin alike are sorted by the rest where they are read.
CREATE INDEX scores_in_order ON agq.scores (key_digest, score, substr(member, 1, 1024));
ANALYZE agq.keys, agq.list_items, agq.scores;
