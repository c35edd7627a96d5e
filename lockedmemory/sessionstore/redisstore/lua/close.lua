-- Decides an ID and raises the mark, without a lease. The token is that to which it raises.
--
-- KEYS, ARGV: see access.lua. records.lua stands before.
-- KEYS  5 the inbox
-- ARGV  11 RememberIDs in ms   12, 13 fields of the ID and of By of storedriver.CloseRequest, or ''
--       14 Below   15 Stop
-- Reply {outcome, the mark before, if there was one}; an error, see calls.lua
local inbox, id, by, below, stop = KEYS[5], ARGV[12], ARGV[13], tonumber(ARGV[14]), tonumber(ARGV[15])
local NEWEST = string.rep('0', 16) -- the field of the message that has arrived last; the digest is its field

refusal = open()
local mark = tonumber(mark_token or 0)
if refusal then
  return refusal
end

local outcome, arrived = look(by)
local fate = look(id)
local _, newest = look(NEWEST)
newest = string.sub(newest or '', 1, DIGEST)
local of_newest = look(newest)
if refusal or outcome ~= DONE or below > 0 and mark >= below then
  return refusal or {outcome, mark_place}
end
if below == 0 and not arrived and by ~= '' then -- ⚑ once: a copy is not the newest again
  keep(by, '?')
  keep(NEWEST, by)
  arrived, newest = true, by
end
if below > 0 and arrived and newest ~= by and of_newest <= KNOWN then -- ⚑ an older message overtakes none
  keep(by, '>')
  return failed and result() or {SUPERSEDED, mark_place}
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
if id ~= '' and not failed then -- ⚑ the item of an open message stays
  run('HDEL', inbox, id)
end
return failed and result() or {below == 0 and fate or DONE, mark_place}
