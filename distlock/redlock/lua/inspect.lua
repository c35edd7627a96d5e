-- Shows a lock. It changes nothing.
--
-- KEYS  1 the lock
-- Reply {record, its PTTL, server's µs}, or {} without a record
local raw = redis.call('GET', KEYS[1])
if not raw then
  return {}
end
local time = redis.call('TIME')
return {raw, redis.call('PTTL', KEYS[1]), time[1] * 1000000 + time[2]}
