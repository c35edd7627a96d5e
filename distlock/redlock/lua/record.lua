-- The record of a name on one node, and the replies. The code of an operation follows.
--
--   1–2  q1   3  h held, r released   4  .
--   5–36  owner   37–68  the owner that was released before; zeros: none
--   69–84  first token of the block   85–95  keep, ms   96–111  since, µs   112–  payload
--
-- The TTL of the key is the remaining time of the grant, plus keep.
--
-- Each reply is {outcome, last token that is reserved, server's µs}. A busy one goes on with the holder:
-- {…, owner, token, payload, age in µs, remaining time in ms; -1: without an end}. The error FOREIGN is
-- that of a record of another program.
local lock = KEYS[1]
local sub = string.sub
local block = 255 -- quorum.Block
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function ms(n) return string.format('%d', n) end

-- read returns held, owner, previous owner, state, token, last token of the block, keep, and for a
-- grant alone the TTL of the key and the remaining time, in ms. The remaining time is nil without a
-- TTL. Without a key the record is free. For the record of another program it returns nil and the
-- error FOREIGN.
-- ⚑ No table: a table takes a quarter of the time of a script.
local function read(raw)
  if not raw then
    local none = '00000000000000000000000000000000'
    return false, none, none, 'r', 0, 0, 0
  end
  local mark, state, held, ttl, left = sub(raw, 1, 4), 'r', false, nil, nil
  local token, keep, since = tonumber(sub(raw, 69, 84)), tonumber(sub(raw, 85, 95)), tonumber(sub(raw, 96, 111))
  if mark ~= 'q1h.' and mark ~= 'q1r.' or not (token and keep and since) or #raw < 111 then
    return nil, redis.error_reply('FOREIGN the record of the lock was not written by a quorum of this library')
  end
  if mark == 'q1h.' then
    state, ttl = 'h', redis.call('PTTL', lock)
    if ttl >= 0 then
      left = ttl - keep
    end
    held = not left or left > 0
  end
  return held, sub(raw, 5, 36), sub(raw, 37, 68), state, token, token + block, keep, ttl, left
end

-- busy is the reply that shows a holder.
local function busy(raw, token, left)
  local age = math.max(now - tonumber(sub(raw, 96, 111)), 0)
  return {'busy', token + block, now, sub(raw, 5, 36), token, sub(raw, 112), age, left or -1}
end
