-- A job that ended in the transaction that added it was left among the jobs that have not ended. Only its record has the time of
-- its end, so it counts as ended by now.
WITH moved AS (DELETE FROM agq.jobs WHERE status NOT IN (0, 1) RETURNING *)
INSERT INTO agq.ended (job_id, action_id, place, plan_id, status, ended_at, holder, created_at, record)
SELECT job_id, action_id, place, plan_id, status, (extract(epoch FROM now()) * 1000)::bigint, holder, created_at, record FROM moved;
