-- Completes a job if the worker holds it. ARGV: id of the job, worker, attempt, result. Returns 1.
local job = 'job:' .. ARGV[1]
local held = redis.call('HMGET', job, 'state', 'worker', 'attempt')
if held[1] ~= 'active' or held[2] ~= ARGV[2] or held[3] ~= ARGV[3] then
  return redis.error_reply('ERR the job is not held by this worker in this attempt')
end
local now = redis.call('TIME')
redis.call('HSET', job, 'state', 'done', 'result', ARGV[4], 'ended_at', now[1])
redis.call('ZREM', 'leases', ARGV[1])
redis.call('HINCRBY', 'counts', 'active', -1)
redis.call('HINCRBY', 'counts', 'done', 1)
return 1
