-- The release of a lock without waiters and tombstones, also for the scripts of a store on the Redis of
-- the lock. Gives release_lock.

-- release_lock ends the grant of an owner if the record is unflagged. It returns 'released' or
-- 'not held'. Or it returns nothing, and what the key holds: then the full release has to decide.
--
-- ⚑ The first command is a write command: no read-only replica answers, and Redis allows the writes
-- after it when it is out of memory.
local function release_lock(lock, owner)
  local raw = redis.call('GETEX', lock)
  local keep = tonumber(string.sub(raw or '', AT_KEEP))
  if not raw or not string.find(raw, '^b2h[!.]') or #raw < HEADER_LEN or not keep then
    return nil, raw
  elseif string.sub(raw, AT_OWNER) ~= owner then
    return string.sub(raw, AT_PREVIOUS) == owner and string.sub(raw, AT_ENDING) == '!' and 'released' or 'not held'
  end
  local ttl = redis.call('PTTL', lock)
  if ttl >= 0 and ttl <= keep then
    return 'not held'
  elseif ttl < 0 then -- restored without a TTL
    redis.call('SET', lock, 'b2r' .. string.sub(raw, AFTER_STATE), 'PX', string.format('%.0f', keep))
  elseif #raw > HEADER_LEN + 64 then -- no long payload stays for a day
    redis.call('SET', lock, 'b2r' .. string.sub(raw, AFTER_STATE), 'KEEPTTL')
  else
    redis.call('SETRANGE', lock, BEFORE_STATE, 'r')
  end
  return 'released'
end

