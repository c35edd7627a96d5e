-- Appends an exchange.
--
-- KEYS, ARGV, Reply: see session.lua.
-- ARGV  6 seq   7 op   8, 9 token and seq of driver.Access.Need
--       10 field of the turn ID, or ''   11 its number   12 digest   13 RememberTurns in ms
--       14… the entry
local n, id, ids, remember = ARGV[6], ARGV[10], KEYS[4], tonumber(ARGV[13])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- expired reports whether a turn ID is known no more. Foreign data stays.
local function expired(record)
  return tonumber(string.match(record, '^(%d+):') or now + 1) <= now
end

local before, record
if id ~= '' then
  before = redis.call('HGET', ids, id)
  local digests = before and not expired(before) and string.match(before, ':(.*)') or ''
  local at = 32 * (ARGV[11] - 1)
  if #digests > at then
    if string.sub(digests, at + 1, at + 32) ~= ARGV[12] then
      return {CONFLICT}
    end
    show() -- refused or not: the exchange is stored
    return {KNOWN}
  end
  record = now + remember .. ':' .. digests .. string.rep('-', at - #digests) .. ARGV[12]
end

-- gone reports whether the exchanges that the lease has read or stored have disappeared, and no Clear
-- says why.
local function gone()
  local need, mark = tonumber(ARGV[8]), tonumber(token or 0)
  if need == 0 then
    return token == fence and state == 'l'
  end
  return state ~= 'e' or cleared == '' or mark < need or mark == need and tonumber(seq) <= tonumber(ARGV[9])
end

local refusal = not there and absent(n)
if refusal then
  return refusal
elseif not there and gone() then
  return {GONE}
end

-- ⚑ The ID is noted first, and taken back without another right: no entry stays without its ID.
local function note()
  local life = redis.call('PTTL', ids)
  local reply = try('HSET', ids, id, record)
  if type(reply) == 'number' and life < remember then
    reply = try('PEXPIRE', ids, remember)
  end
  return type(reply) == 'table' and reply
end

refusal = record and note()
refusal = refusal or add(n, ARGV[7], unpack(ARGV, 14))
if refusal then
  -- HDEL leaves no key without a TTL if the right to PEXPIRE is missing.
  if record and (before or type(try('HDEL', ids, id)) == 'table') then
    try('HSET', ids, id, before or '0:')
  end
  return refusal
end
on_entry(0)
if record then
  local some = after('HRANDFIELD', ids, 4, 'WITHVALUES') or {}
  for i = 1, #some, 2 do
    if expired(some[i + 1]) then
      after('HDEL', ids, some[i])
    end
  end
end
return done()
