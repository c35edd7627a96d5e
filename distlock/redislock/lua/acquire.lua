-- Grants a lock, keeps a grant, or puts an owner into the queue. It follows time.lua. record.lua,
-- slow.lua and acquirefull.lua follow.
--
-- KEYS  see slow.lua; while the slot moves the lock alone: then without queue and tombstones
-- ARGV  1 owner   2 TTL in ms   3 payload
--       and, to wait, 4 for how many ms   5 seq   6 ticket to enter with, or 0   7 channel, or ''
-- Reply {'granted', token, last token of the block, waiters}          now or before
--       {'busy', record, its PTTL, server's s, µs, waiters, ticket}   held by another owner
--       {'full', the same}                                            and the queue is full
--       {'cancelled'}                                                 ended, or with a tombstone
--       the errors FOREIGN, FENCE: nothing was written
--
-- May be repeated. A holder gets its stored grant, and at least the TTL, never less than is left.
-- So a late copy shortens no extended grant. A waiter keeps its ticket and its longest promise.
local raw = redis.call('GET', KEYS[1])

-- The usual case: a request that does not wait finds no flag and no holder.
if not ARGV[4] and now >= 1000000000000000 then
  local token, previous, ending = now, '00000000000000000000000000000000', '.'
  if raw then
    previous, ending = string.sub(raw, 5, 36), '!'
    local last = string.find(raw, '^b2r[!.]') and #raw >= 111 and previous ~= ARGV[1]
      and string.sub(raw, 37, 68) ~= ARGV[1] and tonumber(string.sub(raw, 85, 100))
    token = last and math.max(last + 1, now)
  end
  local block = now + 20000 -- driver.FenceBlock, µs
  if token and token <= block then
    redis.call('SET', KEYS[1], 'b2h' .. ending .. ARGV[1] .. previous
      .. string.format('%.0f%.0f00086400020', token, block) .. ARGV[3], 'PX', ARGV[2] + 86400020)
    return {'granted', token, block, 0}
  end
end
