-- The record of a message ID, a field of the hash of IDs. The scripts that read records follow.
--
-- A record has RECORD bytes: VERSION, UNTIL digits of the time in ms at which the ID expires, DIGEST bytes
-- of the digest, TOKEN digits of the token, and the digits of lockedmemory.Place.N. An ID without an exchange
-- has zeros there. Its digest begins with a mark: of an ID that is closed, or that has arrived and is open.
local VERSION, UNTIL, DIGEST, TOKEN, RECORD = '1', 13, 16, 16, 59
local MARKS = {['!'] = 11, ['>'] = 12, ['?'] = 0} -- Stopped, Superseded, Done

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

-- known_of returns digest and place of a record, or nil without one; a refusal; and the outcome of the ID:
-- that of its mark, Known, or Done.
local function known_of(record, now)
  local at = record and expires(record)
  if record and not at then
    return nil, redis.error_reply('WRONGTYPE the key that ends in "ids" has a record of another program, '
      .. 'or of another version of this library')
  end
  local known = at and at > now and string.sub(record, UNTIL + 2) or nil
  return known, nil, known and (MARKS[string.match(known, '^([!>?]).*0000000000000$')] or 1) or 0
end
