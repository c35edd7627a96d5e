-- Shows a lock. It changes nothing.
--
-- KEYS  1 the lock   2 the queue   3 its waiters; while the slot moves the lock alone
-- ARGV  1 how many live waiters to show
-- Reply {record, its PTTL, server's s, µs, waiters, then for each waiter: ticket, entry in the hash},
--       or {} without a record
local raw = redis.call('GET', KEYS[1])
if not raw then
  return {}
end
local time = redis.call('TIME')
local reply = {raw, redis.call('PTTL', KEYS[1]), time[1], time[2], 0}
local waiting = KEYS[2] and redis.pcall('ZCARD', KEYS[2])
if type(waiting) == 'number' then
  reply[5] = waiting
  local left, at = tonumber(ARGV[1]), 0
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  while left > 0 do
    local waiter = redis.call('ZRANGE', KEYS[2], at, at, 'WITHSCORES')
    if not waiter[1] then
      break
    end
    local entry = redis.call('HGET', KEYS[3], waiter[1]) or ''
    if tonumber(string.match(entry, '^%d+') or 0) > now_ms then
      reply[#reply + 1] = waiter[2]
      reply[#reply + 1] = entry
      left = left - 1
    end
    at = at + 1
  end
end
return reply
