-- Claims the oldest job for a minute. ARGV: the worker. Returns id, attempt and input of the job, or nil.
local id = redis.call('RPOP', 'ready')
if not id then
  return false
end
local job = 'job:' .. id
local now = redis.call('TIME')
local attempt = redis.call('HINCRBY', job, 'attempt', 1)
redis.call('HSET', job, 'state', 'active', 'worker', ARGV[1], 'claimed_at', now[1])
redis.call('ZADD', 'leases', now[1] + 60, id)
redis.call('HINCRBY', 'counts', 'ready', -1)
redis.call('HINCRBY', 'counts', 'active', 1)
return { id, attempt, redis.call('HGET', job, 'input') }
