-- Extends the grant of an owner.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 TTL in ms
-- Reply 'held', for the TTL at least; 'asked', the same of a holder that was asked to end; 'not held',
-- which is final; or the error FOREIGN
--
-- A late copy shortens nothing. Both writes need no memory.
local raw = redis.call('GETEX', KEYS[1]) -- ⚑ a write command, so that no read-only replica answers
if not raw then
  return 'not held'
end
local state, keep = string.match(raw, '^b2([hrHR])[!.]'), tonumber(string.sub(raw, AT_KEEP))
local _, digits = string.find(raw, '^%d+', FIRST_DIGIT)
if not state or (digits or 0) < HEADER_LEN then
  return redis.error_reply('FOREIGN the record of the lock was not written by this library')
elseif string.sub(raw, AT_OWNER) ~= ARGV[1] or state == 'r' or state == 'R' then
  return 'not held'
end
local ttl, wanted = redis.call('PTTL', KEYS[1]), ARGV[2] + keep
if ttl >= 0 and ttl <= keep then
  return 'not held'
end
if ttl < wanted then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', wanted))
end
return string.find(raw, '^{"a":', HEADER_LEN + 1) and 'asked' or 'held'
