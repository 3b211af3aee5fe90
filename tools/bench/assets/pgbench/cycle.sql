-- One cycle: submit, claim, complete; each statement is a transaction of its own.
-- A claim finds nothing if other clients took all jobs of its snapshot. It is then repeated, at most twice.
INSERT INTO job (input) VALUES (:payload);
\set id 0
UPDATE job SET state = 'active', attempt = attempt + 1, worker = :client_id, leased_until = now() + interval '1 minute' WHERE id = (SELECT id FROM job WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, attempt, input \aset
\if :id = 0
UPDATE job SET state = 'active', attempt = attempt + 1, worker = :client_id, leased_until = now() + interval '1 minute' WHERE id = (SELECT id FROM job WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, attempt, input \aset
\endif
\if :id = 0
UPDATE job SET state = 'active', attempt = attempt + 1, worker = :client_id, leased_until = now() + interval '1 minute' WHERE id = (SELECT id FROM job WHERE state = 'ready' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, attempt, input \aset
\endif
UPDATE job SET state = 'done', result = :result, ended_at = now(), leased_until = NULL WHERE id = :id AND state = 'active' AND worker = :client_id AND attempt = :attempt;
