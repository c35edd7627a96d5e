-- Appends an entry under a lock that is free, without taking it. The token comes from the lock, and is above that of the
-- log's last entry.
--
-- KEYS  1 the log   2 the lock   3 its counter   4 its line   5 the mark of this op, if it was cancelled
--       6 the turn ID's key, if there is one
-- ARGV  1 op   2 for how long the log is kept, in ms, or '0'   3 how many entries to keep, or '0'   4 input   5 output
--       and, with a turn ID, 6 the ID   7 digest   8 for how long to remember it, in ms
-- Reply {DONE}, {KNOWN}, {CONFLICT}; {TAKEN}: the lock is not free, or the op was cancelled
--
-- Must not be repeated; settle.lua says whether it has happened.
local log = KEYS[1]
local fields = {'op', ARGV[1], 'in', ARGV[4], 'out', ARGV[5]}
if KEYS[6] then
  local known = redis.call('GET', KEYS[6])
  if known then
    return {known == ARGV[7] and KNOWN or CONFLICT}
  end
  fields[7], fields[8] = 'id', ARGV[6]
end
local fence = token_instantly(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if not fence then
  return {TAKEN}
end
local last = last_of(log)
local top = last and tonumber(string.match(last[1], '^%d+')) or 0
if top >= tonumber(fence) then
  if top >= 9007199254740991 then
    return {TAKEN} -- no token is high enough; who takes the lock is told so
  end
  fence = string.format('%.0f', top + 1)
end
local words = {log}
if ARGV[3] ~= '0' then
  words[2], words[3], words[4] = 'MAXLEN', '~', ARGV[3]
end
words[#words + 1] = fence .. '-1'
for i = 1, #fields do
  words[#words + 1] = fields[i]
end
local reply = redis.pcall('XADD', unpack(words))
if reply.err then
  if string.find(reply.err, 'equal or smaller', 1, true) then
    return {TAKEN} -- the last entry was removed by hand; who takes the lock finds out
  end
  return reply
end
if last and is_mark(last) then
  redis.call('XDEL', log, last[1])
end
if KEYS[6] then
  redis.call('SET', KEYS[6], ARGV[7], 'PX', ARGV[8])
end
if ARGV[2] ~= '0' then
  redis.call('PEXPIRE', log, ARGV[2])
end
return {DONE}
