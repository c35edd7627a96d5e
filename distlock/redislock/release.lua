-- Ends the grant of an owner.
--
-- KEYS  1 the lock   2 the name's counter   3 the mark of this owner, if it is to be marked
-- ARGV  1 owner   2 for how many ms to mark the owner as cancelled; '0': not
-- Reply 1 ended, by this call or by an earlier copy of it; 0 not held by this owner
--
-- May be repeated as long as no two other owners were granted the name since. The removal comes first: Redis allows it
-- when it is out of memory. Noting the release in the counter may fail then, and does no harm (scripts do not roll back).
local owner = ARGV[1]
local ended = 0
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
  redis.call('DEL', KEYS[1])
  if redis.pcall('APPEND', KEYS[2], '!') == 1 then
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
  redis.call('SET', KEYS[3], '', 'PX', ARGV[2])
end
return ended
