-- Reads the exchanges of a turn ID: the highest number, and the entries that the log still has.
--
-- KEYS  1 the log   2 the turn IDs
-- ARGV  1 field of the turn ID   2, 3 driver.Read.From as in a record, and as an ID   4 entries at most
-- Reply {highest number, {entries as of XRANGE}}
local most = tonumber(ARGV[4])
local items, refusal = items_of(redis.call('HGET', KEYS[2], ARGV[1]), clock())
if refusal then
  return refusal
end
local found = {}
for at = DIGEST + 1, #items, ITEM do
  local digits = string.match(string.sub(items, at, at + ITEM - DIGEST - 1), '^%d+$') -- nil: a skipped number
  if digits and digits >= ARGV[2] and #found < most then
    local token, n = tonumber(string.sub(digits, 1, TOKEN)), tonumber(string.sub(digits, TOKEN + 1))
    local place = string.format('%.0f-%.0f', token, n)
    local first = digits == ARGV[2] and '(' .. ARGV[3] or place .. '000000'
    local last = place .. '999999' -- the highest sub-place, where replaced content may stand
    for _, entry in ipairs(redis.call('XRANGE', KEYS[1], first, last, 'COUNT', most - #found)) do
      found[#found + 1] = entry
    end
  end
end
return {#items / ITEM, found}
