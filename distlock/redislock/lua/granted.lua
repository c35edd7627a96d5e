-- For the scripts of a store on the Redis of the lock. See colocated.go.

-- is_granted reports whether a fencing token, a number, was reserved for the present holder.
local function is_granted(lock, token)
  local raw = redis.call('GET', lock) or ''
  local _, digits = string.find(raw, '^%d+', 69)
  if not string.find(raw, '^b2[hH][!.]') or (digits or 0) < 111 then
    return false
  end
  local first, last = tonumber(string.sub(raw, 69, 84)), tonumber(string.sub(raw, 85, 100))
  if token < first or token > last then
    return false
  end
  local ttl = redis.call('PTTL', lock)
  return ttl < 0 or ttl > tonumber(string.sub(raw, 101, 111))
end
