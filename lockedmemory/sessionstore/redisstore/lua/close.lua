-- Decides an ID and raises the mark, without a lease. The token is that to which it raises.
--
-- KEYS, ARGV: see access.lua.
-- ARGV  11, 12 fields of the ID and of By of storedriver.CloseRequest, or ''   13 '1': as superseded
--       14 '1': By arrives   15 Below   16 Stop   17 RememberIDs in ms
-- Reply {outcome of the ID, outcome of By, token of the mark before}; an error, see calls.lua
local id, by, supersedes, arrives = ARGV[11], ARGV[12], ARGV[13] == '1', ARGV[14] == '1'
local below, stop, remember = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
local NEWEST = string.rep('0', 16) -- the field of the message that has arrived last; the digest is its field

local refusal = open()
local mark, now = tonumber(mark_token or 0), clock()
if refusal or below > 0 and mark >= below then
  return refusal or {LATER, DONE, mark}
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

local decided, arrived = look(by)
local outcome = look(id)
local _, newest = look(NEWEST)
newest = string.sub(newest or '', 1, DIGEST)
local of_newest = look(newest)
if refusal or decided ~= DONE then
  return refusal or {DONE, decided, mark}
end
if arrives and not arrived and by ~= '' then -- ⚑ once: a copy is not the newest again
  keep(by, '?')
  keep(NEWEST, by)
  arrived, newest = true, by
end
if below > 0 and arrived and newest ~= by and of_newest <= KNOWN then -- ⚑ an older message overtakes none
  keep(by, '>')
  return failed and result() or {DONE, SUPERSEDED, mark}
end
local raises, stops = tonumber(token) > mark, stop > stopped
stopped = math.max(stopped, stop)
refusal = raises and raise_mark()
failed = failed or refusal and refusal.err
if stops and (refusal or not raises) and mark_place then
  set_mark(mark_place, state, cleared)
end
if id ~= '' and outcome == DONE then
  outcome = supersedes and SUPERSEDED or STOPPED
  keep(id, supersedes and '>' or '!')
  prune(id, now)
end
return failed and result() or {outcome, DONE, mark}
