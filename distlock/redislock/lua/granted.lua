-- For the scripts of a store on the Redis of the lock. See colocated.go. Gives is_granted.

-- is_granted reports whether a fencing token, a number, was reserved for the present holder. ⚑ An ask
-- raises the last token of the record above that of the block.
local function is_granted(lock, token)
  local raw = redis.call('GET', lock) or ''
  local _, digits = string.find(raw, '^%d+', FIRST_DIGIT)
  if not string.find(raw, '^b2[hH][!.]') or (digits or 0) < HEADER_LEN then
    return false
  end
  local first, last = tonumber(string.sub(raw, AT_TOKEN)), tonumber(string.sub(raw, AT_LAST))
  if token < first or token > math.min(last, first + FENCE_BLOCK) then
    return false
  end
  local ttl = redis.call('PTTL', lock)
  return ttl < 0 or ttl > tonumber(string.sub(raw, AT_KEEP))
end
