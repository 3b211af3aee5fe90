-- So many jobs that wait, and the statistics that autovacuum would have made by and by.
INSERT INTO job (input) SELECT :'payload' FROM generate_series(1, :jobs);
VACUUM ANALYZE job;
