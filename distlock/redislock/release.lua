-- Ends the grant of an owner, and hands the lock to the first in line. An owner that may stand in line itself leaves it.
--
-- KEYS  1 the lock   2 the name's counter
--       3 the line   4 who stands in it; both may be left out, and then nobody is handed the lock
--       5 the mark of this owner, if it is to be marked
-- ARGV  1 owner   2 for how many ms to mark the owner as cancelled; '0': not
--       3 '1' if the owner may stand in line
-- Reply 1 ended, by this call or by an earlier copy of it; 0 not held by this owner
--
-- May be repeated as long as no two other owners were granted the name since. The removal comes first: Redis allows it
-- when it is out of memory, and what follows in the same script too. Noting the release in the counter may fail all the same, and does
-- no harm (scripts do not roll back).
local owner = ARGV[1]
local ended = 0

-- pass hands the lock, which is free, to the first in line, and reports whether it did. mark is what the counter has to say of
-- the owner that had it last.
local function pass(mark)
  if not KEYS[3] or redis.call('EXISTS', KEYS[3]) == 0 then
    return false
  end
  local counter = redis.call('GET', KEYS[2])
  local time = redis.call('TIME')
  counter = counter and counter .. mark
  while true do
    local to = first(now(time), '', 0)
    if not to then
      return false
    end
    local value, refused = hand_over(time, counter, to)
    if value or refused then
      return value and true
    end
  end
end

-- try is pass, but for data of other programs: they do not keep a lock from being released. Where a right is missing, pass may end
-- half-way, and the counter be the next owner's already: then the lock is passed, and the counter is not to be marked any more.
local function try(mark)
  local fine, passed = pcall(pass, mark)
  if not fine then
    local counter = redis.pcall('GET', KEYS[2])
    return type(counter) == 'string' and string.sub(counter, -#owner - 1) ~= ':' .. owner
  end
  return passed
end

if ARGV[3] == '1' and KEYS[3] then
  redis.pcall('ZREM', KEYS[3], owner)
  redis.pcall('HDEL', KEYS[4], owner)
end
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
  redis.call('DEL', KEYS[1])
  if not try('!') and redis.pcall('APPEND', KEYS[2], '!') == 1 then
    redis.call('DEL', KEYS[2]) -- there was no counter: evicted, or removed by hand
  end
  ended = 1
else
  local counter = redis.call('GET', KEYS[2])
  if counter and string.find(counter, ':' .. owner .. '[!:]') then
    ended = 1
  end
  if not held then
    try('') -- it has expired, or was removed by hand: the line need not wait until one of it asks
  end
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[5], '', 'PX', ARGV[2])
end
return ended
