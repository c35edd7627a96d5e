-- Grants a name under stated tokens, or keeps a grant. Its code follows record.lua and write.lua.
--
-- KEYS  1 the lock   2 the tombstone of the owner
-- ARGV  1 owner   2 TTL in ms   3 token, 4 last token of the block; zeros: the next ones   5 payload
--       3 and 4 have 16 digits: Lua formats numbers slowly
-- Reply {'granted', last, server's µs, token}
--       {'busy', last, server's µs, record, its PTTL}   held by another owner
--       {'too low', last, server's µs}    the token is not above the last one, or is a day old
--       {'cancelled', last, server's µs}  released, or with a tombstone
--       the errors FOREIGN, FLOOR: nothing was written
--
-- May be repeated. A holder gets its stored grant, and at least the TTL, never less than is left.
-- So a late copy shortens no extended grant.
local r, refused = read(redis.call('GET', lock))
refused = refused or too_far(tonumber(ARGV[3]))
if refused then
  redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
  return refused
end
local owner, token, last = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local mine, exact = r.owner == owner, token > 0
local again = r.held and mine and exact and token == r.token and last == r.last

local answer
if is_released(r, owner) or redis.call('PTTL', KEYS[2]) ~= -2 or mine and not r.held and not exact then
  answer = {'cancelled', r.last, now}
elseif r.held and not mine then
  answer = {'busy', r.last, now, r.raw, r.ttl}
elseif exact and not again and token <= math.max(r.last, now - 86400000000) then -- driver.FenceKeep, µs
  answer = {'too low', r.last, now}
end
if answer then
  redis.call('GETEX', lock) -- ⚑ as above
  return answer
end

if again or r.held and not exact then
  redis.call('PEXPIRE', lock, ms(math.max(ARGV[2], r.left or 0) + r.keep))
  return {'granted', r.last, now, r.token}
end
if not exact then
  token = math.max(r.last + 1, now)
  last = token + 255
end
local keep, previous = keep_of(last), r.state == 'r' and r.owner or r.previous
local tokens = exact and ARGV[3] .. ARGV[4] or string.format('%016.0f%016.0f', token, last)
redis.call('SET', lock, 'q1h.' .. owner .. previous .. tokens .. string.format('%011.0f%016.0f', keep, now)
  .. ARGV[5], 'PX', ms(ARGV[2] + keep))
return {'granted', last, now, token}
