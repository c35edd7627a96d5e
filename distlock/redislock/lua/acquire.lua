-- Grants a lock, keeps a grant, or puts an owner into the queue. The usual case is here, and
-- acquire_any.lua has all cases. Takes now. Gives raw.
--
-- KEYS  see queue.lua; while the slot moves the lock alone: then without queue and tombstones
-- ARGV  1 owner   2 TTL in ms   3 payload
--       and, to wait, 4 for how many ms   5 seq   6 ticket to enter with, or 0   7 channel, or ''
-- Reply token, last token of the block (16 digits each), waiters: a text   granted, now or before
--       {'busy', record, its PTTL, server's s, µs, waiters, ticket}   held by another owner
--       {'full', the same}                                            and the queue is full
--       {'cancelled'}                                                 ended, or with a tombstone
--       the errors FOREIGN, FENCE: nothing was written
--
-- May be repeated. A holder gets its stored grant, and at least the TTL, never less than is left.
-- So a late copy shortens no extended grant. A waiter keeps its ticket and its longest promise.
local raw = redis.call('GET', KEYS[1])

-- The usual case: a request that does not wait finds no flag and no holder. ⚑ Numbers that have not
-- 16 digits each go the other way, where they get them: %d is fast, and needs a long of 64 bits.
if not ARGV[4] then
  local token, previous, ending = now, '00000000000000000000000000000000', '.'
  if raw then
    previous, ending = string.sub(raw, AT_OWNER), '!'
    local last = string.find(raw, '^b2r[!.]') and #raw >= HEADER_LEN and previous ~= ARGV[1]
      and string.sub(raw, AT_PREVIOUS) ~= ARGV[1] and tonumber(string.sub(raw, AT_LAST))
    token = last and math.max(last + 1, now)
  end
  local block = now + FENCE_BLOCK
  local tokens = token and token <= block and string.format('%d%d', token, block) or ''
  if #tokens == 32 then
    -- ⚑ no function of its own: Redis would make it for each call
    redis.call('SET', KEYS[1], 'b2h' .. ending .. ARGV[1] .. previous .. tokens .. KEEP_DIGITS .. ARGV[3],
      'PX', string.format('%d', ARGV[2] + GRANT_KEEP))
    return tokens .. '0'
  end
end
