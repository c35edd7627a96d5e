-- Says whether instant.lua has written the entry of an op, and keeps it from doing so later.
--
-- KEYS  1 the log   2 the mark of this op, as one that was cancelled
-- ARGV  1 op   2 for how long to mark it, in ms
-- Reply 1 it has; 0 it has not, and will not; 2 so much was written since that it cannot be told
--
-- May be repeated.
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
local entries = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1000)
for _, entry in ipairs(entries) do
  if entry[2][1] == 'op' and entry[2][2] == ARGV[1] then
    return 1
  end
end
return #entries == 1000 and 2 or 0
