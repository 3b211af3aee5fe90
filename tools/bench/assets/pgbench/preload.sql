-- Inserts queued jobs, and collects the statistics that autovacuum would collect later.
INSERT INTO job (input) SELECT :'payload' FROM generate_series(1, :jobs);
VACUUM ANALYZE job;
