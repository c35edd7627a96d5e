-- Ends the grant of an owner, and hands the lock to the first in line. An owner that may stand in line itself leaves it.
--
-- KEYS  1 the lock   2 the name's counter   3 the line   4 who stands in it   5 the mark of this owner, if it is to be marked
-- ARGV  1 owner   2 for how many ms to mark the owner as cancelled; '0': not
--       3 '1' if the owner may stand in line
-- Reply 1 ended, by this call or by an earlier copy of it; 0 not held by this owner
--
-- May be repeated as long as no two other owners were granted the name since. The removal comes first: Redis allows it
-- when it is out of memory, and what follows in the same script too. Noting the release in the counter may fail all the same, and does
-- no harm (scripts do not roll back).
local owner = ARGV[1]
local ended = 0

-- pass hands the lock on, and reports whether it did. A line of another type is none.
local function pass()
  local counter = redis.call('GET', KEYS[2])
  local time = redis.call('TIME')
  counter = counter and counter .. '!'
  while true do
    local to = first(now(time), '', 0)
    if not to then
      return false
    elseif hand_over(time, counter, to) then
      return true
    end
  end
end

if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[3], owner)
  redis.call('HDEL', KEYS[4], owner)
end
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
  redis.call('DEL', KEYS[1])
  local passed = false
  if redis.call('EXISTS', KEYS[3]) == 1 then
    local fine, result = pcall(pass)
    passed = fine and result
  end
  if not passed and redis.pcall('APPEND', KEYS[2], '!') == 1 then
    redis.call('DEL', KEYS[2]) -- there was no counter: evicted, or removed by hand
  end
  ended = 1
else
  local counter = redis.call('GET', KEYS[2])
  if counter and string.find(counter, ':' .. owner .. '[!:]') then
    ended = 1
  end
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[5], '', 'PX', ARGV[2])
end
return ended
