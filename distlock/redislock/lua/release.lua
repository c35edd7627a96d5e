-- Ends the grant of an owner. Its code is in the script of a batch of locks, without their queues. It
-- is in that of a lone lock, followed by record.lua, slow.lua and releasefull.lua. And scripts of a
-- store have it, see colocated.go. While its slot moves, the script of a lone lock has the first key
-- alone, and serves no queue.
--
-- KEYS  the locks
-- ARGV  for each lock: owner
-- Reply for each lock:
--       'released'  the grant is ended, by this call or by an earlier copy of it
--       'pass'      the same, and there may be a queue: releasefull.lua has to pass the lock on
--       'not held'  this owner does not hold the lock
--       the error FOREIGN: the key holds no record, and stays as it is
--
-- has_queue: releasefull.lua follows, with the queue. only_releases: the request neither cancels nor
-- breaks. If both are true, this script answers for an unflagged lock that is held.
--
-- May be repeated. ⚑ The first command is a write command: no read-only replica answers, and Redis
-- allows the writes after it when it is out of memory.
local raw = redis.call('GETEX', key)
local state = string.match(raw or '', '^b2([hrHR])[!.]')
if not has_queue or only_releases and state == 'h' then
  local keep = tonumber(string.sub(raw or '', 101, 111))
  if not raw then
    return 'not held'
  elseif not state or #raw < 111 or not keep then
    return redis.error_reply('FOREIGN the record of the lock was not written by this library')
  elseif string.sub(raw, 5, 36) ~= owner then
    return string.sub(raw, 37, 68) == owner and string.sub(raw, 4, 4) == '!' and 'released' or 'not held'
  elseif state == 'r' then
    return 'released'
  elseif state == 'R' then
    return 'pass'
  end
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 and ttl <= keep then
    return 'not held'
  end
  local released = state == 'h' and 'r' or 'R'
  if ttl < 0 then -- restored without a TTL
    redis.call('SET', key, 'b2' .. released .. string.sub(raw, 4, 111), 'PX', string.format('%.0f', keep))
  elseif #raw > 175 then -- no long payload stays for a day
    redis.call('SET', key, 'b2' .. released .. string.sub(raw, 4, 111), 'KEEPTTL')
  else
    redis.call('SETRANGE', key, '2', released)
  end
  return state == 'h' and 'released' or 'pass'
end
