-- The record of a lock as a table. docs/design/redis.md has its invariants, and docs/design/driver.md the
-- states of an owner. Takes now. Gives lock, now_ms, ms, read, shown, write and mint.
local lock = KEYS[1]
local now_ms = math.floor(now / 1000)
local none = string.rep('0', 32)

local function ms(n) return string.format('%.0f', n) end

-- read returns the record of a key as a table, or the error FOREIGN. Without a key the record is
-- free and has no owners. left is the remaining time of the lock, in ms; nil without a TTL.
local function read(raw)
  if not raw then
    return {state = 'r', ending = '.', owner = none, previous = none, token = 0, last = 0, left = 0, ttl = 0, payload = ''}
  end
  local state, ending = string.match(raw, '^b2([hrHR])([!.])')
  local _, digits = string.find(raw, '^%d+', FIRST_DIGIT)
  if not state or (digits or 0) < HEADER_LEN then
    return nil, redis.error_reply('FOREIGN the record of the lock was not written by this library')
  end
  local r = {
    raw = raw, state = string.lower(state), flagged = state == 'H' or state == 'R', ending = ending,
    owner = string.sub(raw, AT_OWNER), previous = string.sub(raw, AT_PREVIOUS),
    token = tonumber(string.sub(raw, AT_TOKEN)), last = tonumber(string.sub(raw, AT_LAST)),
    keep = tonumber(string.sub(raw, AT_KEEP)), payload = string.sub(raw, HEADER_LEN + 1), ttl = redis.call('PTTL', lock),
  }
  if r.ttl >= 0 then
    r.left = r.ttl - r.keep
  elseif r.state == 'r' then
    r.left = 0
  end
  r.held = r.state == 'h' and (not r.left or r.left > 0)
  return r
end

-- shown is the token that waiters see: of the last ask of the grant, or else of the grant. ⚑ An ask stands
-- in the payload alone, so that each grant removes it, and no other script has to.
local function shown(r) return math.max(r.token, tonumber(string.match(r.payload, '^{"a":"(%d+)"') or 0)) end

-- write replaces the record. left is the remaining time of the lock, in ms; below 0 the time since
-- its end. life is how long the tombstones need the flag, in ms.
local function write(r, left, life)
  local keep = FENCE_KEEP + math.ceil(math.max(r.last - now, 0) / 1000)
  keep = math.max(keep, life - math.min(left or 0, 0))
  keep = math.min(keep, 99999999999) -- eleven digits: three years
  local state = r.flagged and string.upper(r.state) or r.state
  r.raw = 'b2' .. state .. r.ending .. r.owner .. r.previous
    .. string.format('%016.0f%016.0f%011.0f', r.token, r.last, keep) .. r.payload
  if left then
    r.ttl = left + keep
    redis.call('SET', lock, r.raw, 'PX', ms(r.ttl))
  else
    redis.call('SET', lock, r.raw, 'KEEPTTL') -- restored without a TTL
  end
end

-- mint reserves tokens above those of the record. It returns nothing, or an error.
local function mint(r, floor)
  local token = math.max(r.last + 1, now, floor)
  local last = math.max(token, now + FENCE_BLOCK)
  if last > 9007199254740991 then
    return redis.error_reply('FENCE the fencing token would pass 2^53')
  end
  r.token, r.last = token, last
end

