-- Raises the token of a holder. Its code follows record.lua and write.lua.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 floor   3 last token of the block from the floor on; 0: any tokens from the floor on
-- Reply {'held', token, last token of the block}; {'not held'}, which is final; or the errors
-- FOREIGN, FLOOR
--
-- May be repeated: a token that reaches the floor stays. The remaining time never changes.
local r, refused = read(redis.call('GETEX', lock)) -- ⚑ a write command, so that no read-only replica answers
local floor, last = tonumber(ARGV[2]), tonumber(ARGV[3])
refused = refused or too_far(floor)
if refused then
  return refused
elseif not r.held or r.owner ~= ARGV[1] then
  return {'not held'}
end
local token
if last > 0 and floor > r.last then
  token = floor
elseif last == 0 and floor > r.token then
  token = math.max(floor, r.last + 1, now)
  last = token + 255
end
if not token then
  return {'held', r.token, r.last}
end
local keep = keep_of(last)
local raw = string.sub(r.raw, 1, 68) .. numbers(token, last, keep) .. string.sub(r.raw, 112)
if r.left then
  redis.call('SET', lock, raw, 'PX', ms(r.left + keep))
else
  redis.call('SET', lock, raw) -- restored without a TTL
end
return {'held', token, last}
