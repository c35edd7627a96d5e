-- Ends the grant of an owner, and cancels the owner. Its code follows record.lua.
--
-- KEYS  1 the lock   2 the tombstone of the owner
-- ARGV  1 owner   2 for how many ms to leave a tombstone, or 0
--       3 channel and 4 message for the waiters; '': none
-- Outcomes  'released': the grant is ended, by this call or by an earlier copy of it
--           'not held': this owner does not hold the lock
--           the error FOREIGN: the key holds no record, and nothing was written
--
-- May be repeated until two other owners were released: then a copy is answered 'not held'.
-- ⚑ The first command is a write command: no read-only replica answers, and Redis allows the writes
-- after it when it is out of memory.
local raw = redis.call('GETEX', lock)
local held, holder, previous, state, _, reserved, keep = read(raw)
if held == nil then
  return holder
end
local owner, tombstone = ARGV[1], tonumber(ARGV[2])
local ends = held and holder == owner
local standing = tombstone > 0 and redis.call('PTTL', KEYS[2]) or 0
if ends then
  redis.call('SET', lock, 'q1r' .. sub(raw, 4, 111), 'PX', ms(keep)) -- no payload stays for a day
end
if tombstone > standing then
  redis.call('SET', KEYS[2], '', 'PX', ms(tombstone))
end
if ends and ARGV[4] ~= '' then
  redis.pcall('PUBLISH', ARGV[3], ARGV[4]) -- without the right to publish, waiters poll
end
local released = ends or previous == owner or state == 'r' and holder == owner
return {released and 'released' or 'not held', reserved, now}
