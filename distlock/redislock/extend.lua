-- Prolongs the grant of an owner.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 TTL in ms   3 '1': exactly that; '0': never less than is left
-- Reply 1 held, and the TTL is set; 0 not held by this owner
--
-- May be repeated. It writes with PEXPIRE alone, which Redis allows when it is out of memory.
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 4, 4 + #ARGV[1]) ~= ARGV[1] .. ':' then
  return 0
end
if ARGV[3] == '1' or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
