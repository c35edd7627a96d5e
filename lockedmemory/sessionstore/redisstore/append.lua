-- Appends an exchange.
--
-- KEYS, ARGV, Reply: see session.lua.
-- ARGV  6 seq   7 op   8, 9 token and seq of driver.Access.Need
--       10 field of the turn ID, or ''   11 its number   12 item of the record   13 RememberTurns in ms
--       14… the entry
local n, id, ids, remember = ARGV[6], ARGV[10], KEYS[4], tonumber(ARGV[13])

local before, record
if id ~= '' then
  before = redis.call('HGET', ids, id)
  local items, damage = items_of(before)
  if damage then
    return damage
  end
  local at = ITEM * (ARGV[11] - 1)
  if #items > at then
    if string.sub(items, at + 1, at + DIGEST) ~= string.sub(ARGV[12], 1, DIGEST) then
      return {CONFLICT}
    end
    show() -- refused or not: the exchange is stored
    return {KNOWN}
  end
  record = string.format('%013.0f', now + remember) .. items .. string.rep('-', at - #items) .. ARGV[12]
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
    try('HSET', ids, id, before or string.rep('0', UNTIL))
  end
  return refusal
end
on_entry(0)
if record then
  local some = after('HRANDFIELD', ids, 4, 'WITHVALUES') or {}
  for i = 1, #some, 2 do
    if (expires(some[i + 1]) or now + 1) <= now then
      after('HDEL', ids, some[i])
    end
  end
end
return done()
