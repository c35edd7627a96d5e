-- The record of a name on one node. The code of an operation follows.
--
--   1–2  q1   3  h held, r released   4  .
--   5–36  owner   37–68  the owner that was released before; zeros: none
--   69–84  token   85–100  last token of the block   101–111  keep, ms   112–127  since, µs   128–  payload
--
-- The TTL of the key is the remaining time of the grant, plus keep.
local lock = KEYS[1]
local none = string.rep('0', 32)

local function ms(n) return string.format('%.0f', n) end

-- read returns the record of a key as a table, or the error FOREIGN. Without a key the record is
-- free. ttl, of a grant alone, is the TTL of the key, and left the remaining time of the grant, in ms;
-- left is nil without a TTL.
local function read(raw)
  if not raw then
    return {state = 'r', owner = none, previous = none, token = 0, last = 0, held = false}
  end
  local r = {
    raw = raw, state = string.match(raw, '^q1([hr])%.'), owner = string.sub(raw, 5, 36), previous = string.sub(raw, 37, 68),
    token = tonumber(string.sub(raw, 69, 84)), last = tonumber(string.sub(raw, 85, 100)),
    keep = tonumber(string.sub(raw, 101, 111)), held = false,
  }
  if not (r.state and r.token and r.last and r.keep) or #raw < 127 then
    return nil, redis.error_reply('FOREIGN the record of the lock was not written by a quorum of this library')
  end
  if r.state == 'h' then
    r.ttl = redis.call('PTTL', lock)
    if r.ttl >= 0 then
      r.left = r.ttl - r.keep
    end
    r.held = not r.left or r.left > 0
  end
  return r
end

-- is_released reports whether the owner is one of the last two that were released.
local function is_released(r, owner)
  return r.previous == owner or r.state == 'r' and r.owner == owner
end
