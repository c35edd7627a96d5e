-- Raises the token of a holder. Its code follows record.lua and write.lua.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 floor   3 last token of the block from the floor on; 0: any tokens from the floor on
-- Reply {'held', token, last token of the block}; {'not held'}, which is final; or the errors
-- FOREIGN, FLOOR
--
-- May be repeated: a token that reaches the floor stays. The remaining time never changes.
local raw = redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
local held, holder, _, _, granted, reserved, _, _, left = read(raw)
local floor, last = tonumber(ARGV[2]), tonumber(ARGV[3])
local refused = held == nil and holder or too_far(floor)
if refused then
  return refused
elseif not held or holder ~= ARGV[1] then
  return {'not held'}
end
local token
if last > 0 and floor > reserved then
  token = floor
elseif last == 0 and floor > granted then
  token = math.max(floor, reserved + 1, now)
  last = token + 255
end
if not token then
  return {'held', granted, reserved}
end
local keep = keep_of(last)
local raised = sub(raw, 1, 68) .. string.format('%016.0f%016.0f%011.0f', token, last, keep) .. sub(raw, 112)
if left then
  redis.call('SET', lock, raised, 'PX', ms(left + keep))
else
  redis.call('SET', lock, raised) -- restored without a TTL
end
return {'held', token, last}
