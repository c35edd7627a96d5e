-- Extends the grant of an owner. Its code follows record.lua.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 TTL in ms
-- Outcomes  'held', for the TTL at least; 'not held', which is final; the error FOREIGN
--
-- A late copy shortens nothing. Both writes need no memory.
local raw = redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
local held, holder, _, _, _, reserved, keep, ttl = read(raw)
if held == nil then
  return holder
elseif not held or holder ~= ARGV[1] then
  return {'not held', reserved, now}
end
local wanted = ARGV[2] + keep
if ttl < wanted then
  redis.call('PEXPIRE', lock, ms(wanted))
end
return {'held', reserved, now}
