-- Shows a lock. Changes nothing.
--
-- KEYS  1 the lock   2 the line
-- Reply {lock's value, its PTTL, server's s, and µs, how many stand in line}, or {} if nobody holds it
local held = redis.call('GET', KEYS[1])
if not held then
  return {}
end
local time = redis.call('TIME')
return {held, redis.call('PTTL', KEYS[1]), time[1], time[2], redis.call('ZCARD', KEYS[2])}
