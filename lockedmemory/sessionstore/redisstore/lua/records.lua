-- Reads IDs, and keeps records without an exchange. saveonce.lua stands before.
--
-- ARGV  11 life of what the script keeps, in ms
local refusal, now, life = nil, clock(), tonumber(ARGV[11])

-- look returns the outcome of an ID, what known_of finds in its record, and the record. A record of another
-- program is the refusal.
local function look(field)
  local record = redis.call('HGET', ids, field)
  local known, foreign, outcome = known_of(record, now)
  refusal = refusal or foreign
  return outcome, known, record
end

-- keep writes a record without an exchange, whose digest begins with a text.
local function keep(field, text)
  local refused = write_id(field, text .. string.rep('0', RECORD - UNTIL - 1 - #text), now, life)
  failed = refused and (remove_id(field) or refused.err) or failed -- remove_id returns nothing
  written = written or not refused
end
