-- Shows a lock. Changes nothing.
--
-- KEYS  1 the lock
-- Reply {lock's value, its PTTL, server's s, and µs}, or {} if nobody holds it
local held = redis.call('GET', KEYS[1])
if not held then
  return {}
end
local time = redis.call('TIME')
return {held, redis.call('PTTL', KEYS[1]), time[1], time[2]}
