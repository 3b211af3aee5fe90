-- A usual queue on PostgreSQL: one table, an index on ready jobs, SKIP LOCKED. It has neither an index on
-- leases nor counters, because these would make it slower.
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'ready',
    attempt integer NOT NULL DEFAULT 0,
    worker integer,
    leased_until timestamptz,
    input text NOT NULL,
    result text,
    submitted_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE INDEX job_ready ON job (id) WHERE state = 'ready';
