-- Grants a lock that is free, unflagged and released. script.go makes two scripts of it: one for a
-- lone lock, and one for a batch, see batch.lua.
--
-- KEYS  the locks
-- ARGV  1 TTL, plus the 86,400,020 ms for which the record outlives a new grant
--       then for each lock: owner, payload
-- Reply for each lock:
--       the numbers of the new record: token, last token of the block, keep; 43 digits
--       {'busy', what the key holds, its PTTL, server's s, µs}   not free, flagged, or not a record
--       'slow'                                                   acquirefull.lua has to mint the token
--
-- now and block are of time.lua. fresh is nil, or the numbers of a record whose token is now.
--
-- May be repeated: a copy finds its own grant, and its answer is 'busy'.
local before = redis.call('GET', key)
local token, previous, ending = now, '00000000000000000000000000000000', '.'
if before then
  previous, ending = string.sub(before, 5, 36), '!'
  local last = string.find(before, '^b2r[!.]') and #before >= 111 and previous ~= owner
    and string.sub(before, 37, 68) ~= owner and tonumber(string.sub(before, 85, 100))
  if not last then
    redis.call('SETRANGE', key, 0, '') -- ⚑ a write that needs memory: no read-only or full server answers
    return {'busy', before, redis.call('PTTL', key), time[1], time[2]}
  end
  if last >= now then
    token = last + 1
  end
end
if token > block or now < 1000000000000000 then
  return 'slow'
end
local numbers = token == now and fresh or string.format('%.0f%.0f00086400020', token, block)
redis.call('SET', key, 'b2h' .. ending .. owner .. previous .. numbers .. payload, 'PX', ARGV[1])
return numbers
