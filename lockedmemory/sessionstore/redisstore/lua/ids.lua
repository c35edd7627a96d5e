-- The record of a message ID, a field of the hash of IDs. The scripts that read records follow.
--
-- A record has RECORD bytes: VERSION, UNTIL digits of the time in ms at which the ID expires, DIGEST bytes
-- of the digest, TOKEN digits of the token, and the digits of lockedmemory.Place.N.
local VERSION, UNTIL, DIGEST, TOKEN, RECORD = '1', 13, 16, 16, 59

-- clock returns the time in ms.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- expires returns when a record expires. For another version, or data of another program, it returns nil.
local function expires(record)
  local digits = #record == RECORD and string.match(record, '^' .. VERSION .. '(' .. string.rep('%d', UNTIL) .. ')')
  return digits and tonumber(digits) or nil
end

-- known_of returns digest and place of a record, or nil if the ID is not known, and a refusal.
local function known_of(record, now)
  local at = record and expires(record)
  if record and not at then
    return nil, redis.error_reply('WRONGTYPE the key that ends in "ids" has a record of another program, '
      .. 'or of another version of this library')
  end
  return at and at > now and string.sub(record, UNTIL + 2) or nil
end
