-- Grants a name under stated tokens, or keeps a grant. Its code follows record.lua and write.lua.
--
-- KEYS  1 the lock   2 the tombstone of the owner
-- ARGV  1 owner   2 TTL in ms   3 token, with 16 digits: Lua formats large numbers slowly   4 payload
-- Outcomes  'granted'; 'busy': held by another owner; 'too low': the token is not above the last one, or
--           is a day old; 'cancelled': released, or with a tombstone; the errors FOREIGN, FLOOR: nothing
--           was written
--
-- May be repeated. A holder gets its stored grant, and at least the TTL, never less than is left.
-- So a late copy shortens no extended grant.
local raw = redis.call('GET', lock)
local held, holder, previous, state, granted, reserved, keep, _, left = read(raw)
local owner, token = ARGV[1], tonumber(ARGV[3])
local refused = held == nil and holder or too_far(token)
if refused then
  redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
  return refused
end
local mine = holder == owner
local again = held and mine and token == granted

local answer
if previous == owner or state == 'r' and mine or redis.call('PTTL', KEYS[2]) ~= -2 then
  answer = {'cancelled', reserved, now}
elseif held and not mine then
  answer = busy(raw, granted, left)
elseif not again and token <= math.max(reserved, now - 86400000000) then -- driver.FenceKeep, µs
  answer = {'too low', reserved, now}
end
if answer then
  redis.call('GETEX', lock) -- ⚑ as above
  return answer
end

if again then
  redis.call('PEXPIRE', lock, ms(math.max(ARGV[2], left or 0) + keep))
else
  keep = keep_of(token)
  redis.call('SET', lock, 'q1h.' .. owner .. (state == 'r' and holder or previous) .. ARGV[3]
    .. string.format('%011d', keep) .. time[1] .. sub('00000' .. time[2], -6) .. ARGV[4], 'PX', ms(ARGV[2] + keep))
end
return {'granted', token + block, now}
