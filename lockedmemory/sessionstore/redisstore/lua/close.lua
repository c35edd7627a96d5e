-- Decides an ID and raises the mark, without a lease. The token is that to which it raises.
--
-- KEYS, ARGV: see access.lua.
-- ARGV  11, 12 fields of the ID and of By of storedriver.CloseRequest, or ''   13 Below   14 Stop
--       15 RememberIDs in ms
-- Reply {outcome, token of the mark before}; an error, see calls.lua
local id, by, below, stop, remember = ARGV[11], ARGV[12], tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local NEWEST = string.rep('0', 16) -- the field of the message that has arrived last; the digest is its field

local refusal = open()
local mark, now = tonumber(mark_token or 0), clock()
if refusal then
  return refusal
end

local function look(field)
  local known, foreign, outcome = known_of(redis.call('HGET', ids, field), now)
  refusal = refusal or foreign
  return outcome, known
end

-- keep writes a record without an exchange, whose digest begins with a text.
local function keep(field, text)
  local refused = write_id(field, text .. string.rep('0', RECORD - UNTIL - 1 - #text), now, remember)
  failed = refused and (remove_id(field) or refused.err) or failed -- remove_id returns nothing
  written = written or not refused
end

local outcome, arrived = look(by)
local fate = look(id)
local _, newest = look(NEWEST)
newest = string.sub(newest or '', 1, DIGEST)
local of_newest = look(newest)
if refusal or outcome ~= DONE or below > 0 and mark >= below then
  return refusal or {outcome, mark}
end
if below == 0 and not arrived and by ~= '' then -- ⚑ once: a copy is not the newest again
  keep(by, '?')
  keep(NEWEST, by)
  arrived, newest = true, by
end
if below > 0 and arrived and newest ~= by and of_newest <= KNOWN then -- ⚑ an older message overtakes none
  keep(by, '>')
  return failed and result() or {SUPERSEDED, mark}
end
local raises, stops = tonumber(token) > mark, stop > stopped
stopped = math.max(stopped, stop)
refusal = raises and raise_mark()
failed = failed or refusal and refusal.err
if stops and (refusal or not raises) and mark_place then
  set_mark(mark_place, state, cleared)
end
if id ~= '' and fate == DONE then
  fate = below > 0 and SUPERSEDED or STOPPED
  keep(id, below > 0 and '>' or '!')
  prune(id, now)
end
return failed and result() or {below == 0 and fate or DONE, mark}
