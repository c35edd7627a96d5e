-- What acquire.lua and release.lua have in common; it is put before both.
--
-- KEYS  1 the lock   2 the name's counter   3 the line   4 who stands in it
--
-- The line is a sorted set of owners by ticket. Who stands in it is a hash, by owner:
-- "<alive until, ms>:<seq>:<whom to wake>:<payload>".

-- mint makes a grant for an owner: its text "<s>:<µs>:<ahead>:", what the counter is to be, and for how many seconds.
-- Without a grant the second result is the error; if that is nil too, the owner's grant is over.
--
-- Tokens are written as TIME's own seconds and microseconds, plus how far they are ahead of it, which is 0 most of the
-- time: formatting large numbers costs more than all the rest. Where a number must be formatted, string.format does it:
-- Lua's own conversion rounds at 14 digits.
local function mint(time, counter, floor, owner, holds)
  local block = 20000  -- driver.FenceBlock, µs
  local keep = 86401   -- driver.FenceKeep, s, and one for the block and rounding
  -- ahead is the token's distance from now: max(last + 1, now, floor) - now.
  local ahead, released = 0, ''
  if counter then
    local s, us, was_ahead, before, granted, is_released =
      string.match(counter, '^(%d+):(%d+):(%d+):(%w*):(%w+)(!?)$')
    if not s then
      return nil, 'FOREIGN the counter of the lock was not written by this library'
    end
    if (granted == owner or before == owner) and not holds then
      return nil
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
  if floor ~= '0' then
    ahead = math.max(ahead, floor - (time[1] * 1000000 + time[2]))
  end
  local ahead_text = '0'
  if ahead > 0 then
    if time[1] * 1000000 + time[2] + math.max(ahead, block) > 9007199254740991 then
      return nil, 'FENCE the fencing token would pass 2^53'
    end
    ahead_text = string.format('%.0f', ahead)
    keep = keep + math.ceil(ahead / 1000000)
  end
  local grant = time[1] .. ':' .. time[2] .. ':' .. ahead_text .. ':'
  -- The counter goes a day after the moment of its last token, so keep counts from that moment, not only from now.
  return grant, grant .. released .. ':' .. owner, keep .. ''
end

-- now is the server's time in ms.
local function now(time) return time[1] * 1000 + math.floor(time[2] / 1000) end

-- first is the first in line that is alive, and what is known of it. Those before it have promised to ask again and have
-- not: they are dropped. An owner that comes before all of them, by its ticket, ends the search.
local function first(at, owner, ticket)
  while true do
    local head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    local id = head[1]
    if not id or id == owner or (ticket > 0 and ticket < tonumber(head[2])) then
      return nil
    end
    local alive, seq, wake, payload = string.match(redis.call('HGET', KEYS[4], id) or '', '^(%d+):(%d+):(%w*):(.*)$')
    if alive and tonumber(alive) > at then
      return {id = id, left = tonumber(alive) - at, seq = seq, wake = wake, payload = payload}
    end
    redis.call('ZREM', KEYS[3], id)
    redis.call('HDEL', KEYS[4], id)
  end
end

-- hand_over grants the lock, which is free, to one who stands in line, for the time that is left of its promise, and wakes
-- it. It returns the lock's value, or nil if the grant could not be made; then the second result is the error, if there is one.
local function hand_over(time, counter, to)
  local grant, next, keep = mint(time, counter, '0', to.id, false)
  local ttl = string.format('%.0f', math.max(to.left, 1000)) -- driver.MinHandoff
  local value = 'b1:' .. to.id .. ':' .. (grant or '') .. to.payload
  if grant then
    -- What is of another type looks absent; NX then refuses it.
    if not redis.call('SET', KEYS[1], value, 'NX', 'PX', ttl) then
      return nil, 'FOREIGN the lock has another type'
    end
    if counter then
      redis.call('SET', KEYS[2], next, 'EX', keep)
    elseif not redis.call('SET', KEYS[2], next, 'NX', 'EX', keep) then
      redis.call('DEL', KEYS[1])
      return nil, 'FOREIGN the counter of the lock has another type'
    end
  elseif next then
    return nil, next
  end
  redis.call('ZREM', KEYS[3], to.id)
  redis.call('HDEL', KEYS[4], to.id)
  if not grant then
    return nil
  end
  if to.wake ~= '' then
    -- Without the right to publish the waiter finds out when it asks: an error would not take the grant back.
    redis.pcall('PUBLISH', string.match(KEYS[1], '^[^{]*') .. 'wake:' .. to.wake,
      to.id .. ':' .. to.seq .. ':' .. ttl .. ':' .. redis.call('ZCARD', KEYS[3]) .. ':' .. grant)
  end
  return value
end

