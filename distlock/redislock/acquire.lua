-- Grants a lock to an owner if nobody holds it.
--
-- KEYS  1 the lock   2 the name's counter   3 the mark of this owner, if it was cancelled
-- ARGV  1 owner   2 TTL in ms   3 lowest fence allowed   4 payload: what the holder wants others to see
--       5 '1': refence, only raise the fence of an owner that holds the lock
-- Reply {1, lock's value, with or without the payload}     granted, now or before
--       {0, lock's value, its PTTL, server's s, and µs}    held by another owner
--       {2}                                                this owner was cancelled, or its grant is over
-- Error FOREIGN, FENCE: nothing was written
--
-- May be repeated: the owner that holds the lock is given its stored grant and at least the TTL, never less than is left:
-- a copy that comes late must not take back what an extend has given.
--
-- Tokens are written as TIME's own seconds and microseconds, plus how far they are ahead of it, which is 0 most of the
-- time: formatting large numbers costs more than all the rest. Where a number must be formatted, string.format does it:
-- Lua's own conversion rounds at 14 digits.
local block = 20000   -- driver.FenceBlock, µs
local keep = 86401    -- driver.FenceKeep, s, and one for the block and rounding
local owner = ARGV[1]

local stored = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local held, counter = stored[1], stored[2]
local holds = false -- and is to be given another token
if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  local s, us, was_ahead = string.match(held, '^(%d+):(%d+):(%d+):', 5 + #owner)
  if ARGV[5] ~= '1' or s * 1000000 + us + was_ahead >= tonumber(ARGV[3]) then
    return {1, held}
  end
  holds = true
elseif ARGV[5] == '1' then
  return {2}
end
local time = redis.call('TIME')
if held and not holds then
  return {0, held, redis.call('PTTL', KEYS[1]), time[1], time[2]}
end
if stored[3] and not holds then
  return {2}
end

-- ahead is the token's distance from now: max(last + 1, now, floor) - now.
local ahead, released = 0, ''
if counter then
  local s, us, was_ahead, before, granted, is_released =
    string.match(counter, '^(%d+):(%d+):(%d+):(%w*):(%w+)(!?)$')
  if not s then
    return redis.error_reply('FOREIGN the counter of the lock was not written by this library')
  end
  if (granted == owner or before == owner) and not holds then
    return {2}
  end
  released = before
  if is_released == '!' then
    released = granted
  end
  was_ahead = tonumber(was_ahead)
  if was_ahead < block then
    was_ahead = block
  end
  ahead = was_ahead + 1 - (time[1] - s) * 1000000 - (time[2] - us)
end
if ARGV[3] ~= '0' then
  ahead = math.max(ahead, ARGV[3] - (time[1] * 1000000 + time[2]))
end
local ahead_text = '0'
if ahead > 0 then
  if time[1] * 1000000 + time[2] + math.max(ahead, block) > 9007199254740991 then
    return redis.error_reply('FENCE the fencing token would pass 2^53')
  end
  ahead_text = string.format('%.0f', ahead)
  keep = keep + math.ceil(ahead / 1000000)
end

local grant = time[1] .. ':' .. time[2] .. ':' .. ahead_text .. ':'
local head = 'b1:' .. owner .. ':' .. grant
if holds then
  redis.call('SET', KEYS[1], head .. ARGV[4], 'KEEPTTL')
-- MGET shows a key of another type as absent; NX then refuses it.
elseif not redis.call('SET', KEYS[1], head .. ARGV[4], 'NX', 'PX', ARGV[2]) then
  return redis.error_reply('FOREIGN the lock has another type')
end
-- The counter goes a day after the moment of its last token, so keep counts from that moment, not only from now.
grant = grant .. released .. ':' .. owner
if counter then
  redis.call('SET', KEYS[2], grant, 'EX', keep .. '')
elseif not redis.call('SET', KEYS[2], grant, 'NX', 'EX', keep .. '') then
  if not holds then
    redis.call('DEL', KEYS[1])
  end
  return redis.error_reply('FOREIGN the counter of the lock has another type')
end
return {1, head}
