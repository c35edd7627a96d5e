-- The record of a turn ID, a field of the hash of turn IDs. The scripts that read records follow.
--
-- A record begins with UNTIL digits: the time in ms at which the ID expires. An item of ITEM bytes
-- follows for each number from 1. An item has DIGEST bytes of the digest and TOKEN digits of the
-- token. Its other digits are lockedmemory.Place.N. The item of a skipped number has '-' only.
local UNTIL, ITEM, DIGEST, TOKEN = 13, 45, 16, 16

-- clock returns the time in ms.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- expires returns when a record expires, or nil if it is data of another program.
local function expires(record)
  local digits = (#record - UNTIL) % ITEM == 0 and string.match(string.sub(record, 1, UNTIL), '^%d+$')
  return digits and tonumber(digits) or nil
end

-- items_of returns the items of a record, or '' if the ID is not known. For data of another program
-- it returns nil and a refusal.
local function items_of(record, now)
  local at = record and expires(record)
  if record and not at then
    return nil, redis.error_reply('WRONGTYPE the key that ends in "ids" has a record that is not one of a turn ID')
  end
  return at and at > now and string.sub(record, UNTIL + 1) or ''
end
