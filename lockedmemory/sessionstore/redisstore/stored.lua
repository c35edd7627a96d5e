-- Reads the exchanges of a turn ID: the highest number, and the entries that the log still has.
--
-- KEYS  1 the log   2 the turn IDs
-- ARGV  1 field of the turn ID   2, 3, 4 token, N and text of driver.Read.From   5 entries at most
-- Reply {highest number, {entries as of XRANGE}}
local log, most = KEYS[1], tonumber(ARGV[5])
local items, refusal = items_of(redis.call('HGET', KEYS[2], ARGV[1]), clock())
if refusal then
  return refusal
end

-- first_of returns the first ID of a place after driver.Read.From, or nil if the place is not after it.
local function first_of(token, n)
  local from_token, from_n = tonumber(ARGV[2]), tonumber(ARGV[3])
  if token == from_token and n == from_n then
    return '(' .. ARGV[4]
  elseif token > from_token or token == from_token and n > from_n then
    return string.format('%.0f-%.0f000000', token, n)
  end
end

local found = {}
for at = DIGEST + 1, #items, ITEM do
  local digits = string.match(string.sub(items, at, at + ITEM - DIGEST - 1), '^%d+$') -- nil: a skipped number
  local token, n = tonumber(string.sub(digits or '', 1, TOKEN)), tonumber(string.sub(digits or '', TOKEN + 1))
  local first = digits and #found < most and first_of(token, n)
  if first then -- up to the highest sub-place, where replaced content may stand
    local last = string.format('%.0f-%.0f999999', token, n)
    for _, entry in ipairs(redis.call('XRANGE', log, first, last, 'COUNT', most - #found)) do
      found[#found + 1] = entry
    end
  end
end
return {#items / ITEM, found}
