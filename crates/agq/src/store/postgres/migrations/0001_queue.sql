-- What agq remembers, for many nodes (ADR 10). Times are milliseconds since 1970; records are MessagePack, as in redb, and what SQL
-- has to find is in columns beside them.

-- Plans, JSON.
CREATE TABLE agq.plans (
    plan_id text COLLATE "C" PRIMARY KEY,
    json text NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE agq.actions (
    action_id text COLLATE "C" PRIMARY KEY,
    record bytea NOT NULL
) WITH (fillfactor = 70);

-- How many jobs of an action are where: the sum over all shards. Each node writes its own, so that nodes which end jobs of the same
-- action do not wait for each other's commits.
CREATE TABLE agq.tallies (
    action_id text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    pending bigint NOT NULL,
    running bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    last_ended_at bigint,
    PRIMARY KEY (action_id, shard)
) WITH (fillfactor = 50);

-- How many jobs there are and were, in the same way.
CREATE TABLE agq.totals (
    shard smallint PRIMARY KEY,
    now bigint[] NOT NULL,
    ever bigint[] NOT NULL
) WITH (fillfactor = 50);

-- Queue and needs, which jobs have in common.
CREATE TABLE agq.lanes (
    lane integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    needs bytea NOT NULL,
    UNIQUE (queue, needs)
);

-- Queues that give no jobs.
CREATE TABLE agq.paused (queue text COLLATE "C" PRIMARY KEY);

-- The order of all jobs.
CREATE SEQUENCE agq.turns;

-- Jobs that have not ended. Every job is updated twice and deleted once: room in each page, and a vacuum that comes early.
CREATE TABLE agq.jobs (
    job_id text COLLATE "C" PRIMARY KEY,
    action_id text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    lane integer NOT NULL,
    rank smallint NOT NULL,
    turn bigint NOT NULL,
    status smallint NOT NULL,
    is_ready boolean NOT NULL,
    due_at bigint,
    holder text COLLATE "C",
    created_at bigint NOT NULL,
    record bytea NOT NULL,
    UNIQUE (action_id, place)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
-- What a claim walks: the ready jobs of a lane in their order, and nothing else.
CREATE INDEX jobs_ready ON agq.jobs (lane, rank, turn) WHERE is_ready;
CREATE INDEX jobs_waiting ON agq.jobs (due_at, job_id) WHERE due_at IS NOT NULL AND status = 0;
CREATE INDEX jobs_leased ON agq.jobs (due_at, job_id) WHERE due_at IS NOT NULL AND status = 1;
CREATE INDEX jobs_held ON agq.jobs (holder, job_id) WHERE status = 1;
CREATE INDEX jobs_of_plan ON agq.jobs (plan_id);

-- Jobs that have ended: out of the way of claims.
CREATE TABLE agq.ended (
    job_id text COLLATE "C" PRIMARY KEY,
    action_id text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    status smallint NOT NULL,
    ended_at bigint NOT NULL,
    holder text COLLATE "C",
    created_at bigint NOT NULL,
    record bytea NOT NULL,
    UNIQUE (action_id, place)
);
CREATE INDEX ended_by_time ON agq.ended (status, ended_at, job_id);

-- Inputs and results, JSON, apart: they are not written again with each step of their job.
CREATE TABLE agq.inputs (job_id text COLLATE "C" PRIMARY KEY, json text NOT NULL);
CREATE TABLE agq.results (job_id text COLLATE "C" PRIMARY KEY, json text NOT NULL);

CREATE TABLE agq.workers (
    worker_id text COLLATE "C" PRIMARY KEY,
    record bytea NOT NULL
) WITH (fillfactor = 50);
-- What workers registered, JSON.
CREATE TABLE agq.registrations (worker_id text COLLATE "C" PRIMARY KEY, json text NOT NULL);

-- The keys of users. A text is in place; a list has its elements at the places from first to before last, a sorted set its members,
-- in tables of their own.
CREATE SEQUENCE agq.key_numbers;
CREATE TABLE agq.keys (
    key bytea PRIMARY KEY,
    number bigint NOT NULL UNIQUE,
    text bytea,
    head bigint,
    tail bigint,
    members bigint,
    expires_at bigint
) WITH (fillfactor = 80);
CREATE INDEX keys_expiring ON agq.keys (expires_at, key) WHERE expires_at IS NOT NULL;
CREATE TABLE agq.list_items (key bytea, place bigint, item bytea NOT NULL, PRIMARY KEY (key, place));
CREATE TABLE agq.scores (key bytea, member bytea, score double precision NOT NULL, PRIMARY KEY (key, member));
CREATE INDEX scores_in_order ON agq.scores (key, score, member);

-- The nodes that share this database, and the one that sees to what nobody reports. Nothing of it is missed after a crash.
CREATE UNLOGGED TABLE agq.instances (
    node text COLLATE "C" PRIMARY KEY,
    hostname text NOT NULL,
    pid bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNLOGGED TABLE agq.leader (
    name text PRIMARY KEY,
    node text COLLATE "C" NOT NULL,
    elected_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Messages to those who listen at other nodes, where they are too long for NOTIFY.
CREATE UNLOGGED TABLE agq.messages (
    message bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload bytea NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT now()
);
