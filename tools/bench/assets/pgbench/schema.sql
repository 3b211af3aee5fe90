-- A queue as it is made with PostgreSQL: one table, an index on what is ready, SKIP LOCKED. An index on leases, and counters,
-- would make it slower: it goes without.
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
