-- One cycle: submit, claim, complete; each statement is a transaction of its own.
-- A claim comes back empty where others took all that its snapshot shows: then it is made again, twice at most.
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
