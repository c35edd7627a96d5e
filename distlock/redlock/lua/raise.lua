-- Raises the token of a holder. Its code follows record.lua and write.lua.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 token
-- Outcomes  'held' with the last token of the grant; 'not held', which is final; the errors FOREIGN, FLOOR
--
-- May be repeated: a token that is not above the block of the grant changes nothing. The remaining time
-- never changes.
local raw = redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
local held, holder, _, _, _, reserved, _, _, left = read(raw)
local token = tonumber(ARGV[2])
local refused = held == nil and holder or too_far(token)
if refused then
  return refused
elseif not held or holder ~= ARGV[1] then
  return {'not held', reserved, now}
end
if token <= reserved then
  return {'held', reserved, now}
end
local keep = keep_of(token)
local raised = sub(raw, 1, 68) .. string.format('%016.0f%011.0f', token, keep) .. sub(raw, 96)
if left then
  redis.call('SET', lock, raised, 'PX', ms(left + keep))
else
  redis.call('SET', lock, raised) -- restored without a TTL
end
return {'held', token + block, now}
