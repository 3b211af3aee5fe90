-- Submits a job. ARGV: its input. Returns the id of the job.
local now = redis.call('TIME')
local id = redis.call('INCR', 'last-job')
redis.call('HSET', 'job:' .. id, 'state', 'ready', 'attempt', 0, 'input', ARGV[1], 'submitted_at', now[1])
redis.call('LPUSH', 'ready', id)
redis.call('HINCRBY', 'counts', 'ready', 1)
return id
