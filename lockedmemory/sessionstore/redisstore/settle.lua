-- Says whether instant.lua has written the entry of an op, and keeps it from doing so later.
--
-- KEYS  1 the log   2 the mark of this op, as one that was cancelled
-- ARGV  1 op   2 for how long to mark it, in ms   3 how long ago the op was sent, at most, in µs
-- Reply 1 it has; 0 it has not, and will not; 2 so much was written since, or all was cleared, that it cannot be told
--
-- May be repeated. The entry's token is not below the time at which it was written, so what is older is not looked at.
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
local time = redis.call('TIME')
local oldest = math.max(0, time[1] * 1000000 + time[2] - ARGV[3])
local first, last = string.format('%.0f', oldest), '+'
for _ = 1, 100 do
  local entries = redis.call('XREVRANGE', KEYS[1], last, first, 'COUNT', 100)
  for _, entry in ipairs(entries) do
    if entry[2][1] == 'op' and entry[2][2] == ARGV[1] then
      return 1
    elseif entry[2][1] == 'clear' then
      return 2
    end
  end
  if #entries < 100 then
    return 0
  end
  last = '(' .. entries[#entries][1]
end
return 2
