-- Appends an entry under a lock that is free, without taking it. The token comes from the lock, and is above that of the
-- log's last entry. A mark that is there stays: who comes next under a lease knows its place.
--
-- KEYS  1 the log   2 the lock   3 its counter   4 its line   5 the mark of this op, if it was cancelled
--       6 the turn ID's key, if there is one
-- ARGV  1 op   2 for how long the log is kept, in ms, or '0'   3 how many entries to keep   4 input   5 output
--       and, with a turn ID, 6 the ID   7 digest   8 for how long to remember it, in ms
-- Reply {0}: done; {1}: the turn ID is known, with this digest; {2}: with another one;
--       {3}: the lock is not free, the op was cancelled, or other data is in the way, of which a Save
--       under the lock gets the error;
--       the error WRITTEN … if the entry stands and a command after it failed
--
-- Must not be repeated; settle.lua says whether it has happened.
local log = KEYS[1]
local known = KEYS[6] and redis.call('GET', KEYS[6])
if known then
  return {known == ARGV[7] and 1 or 2}
end
local fence = token_instantly(KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if not fence then
  return {3}
end

local function add()
  if KEYS[6] then
    return redis.pcall('XADD', log, 'MAXLEN', '~', ARGV[3], fence .. '-1', 'op', ARGV[1], 'in', ARGV[4], 'out', ARGV[5], 'id', ARGV[6])
  end
  return redis.pcall('XADD', log, 'MAXLEN', '~', ARGV[3], fence .. '-1', 'op', ARGV[1], 'in', ARGV[4], 'out', ARGV[5])
end

local reply = add()
if reply.err and string.find(reply.err, 'equal or smaller', 1, true) then
  -- The log has seen a token that the lock does not know of.
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local top = last and tonumber(string.match(last[1], '^%d+')) or 0
  local time = redis.call('TIME')
  local year = 31536000000000 -- driver.FloorAhead, µs
  if top < tonumber(fence) or top - (time[1] * 1000000 + time[2]) >= year then
    return {3} -- the last entry was removed by hand, damaged, or written by another program
  end
  fence = string.format('%.0f', top + 1)
  reply = add()
end
if reply.err then
  return reply
end
local noted = KEYS[6] and redis.pcall('SET', KEYS[6], ARGV[7], 'PX', ARGV[8]) or {}
local undone = noted.err and redis.pcall('XDEL', log, fence .. '-1') -- see append.lua
local kept = ARGV[2] ~= '0' and redis.pcall('PEXPIRE', log, ARGV[2])
if type(undone) == 'table' then
  return redis.error_reply('WRITTEN ' .. undone.err)
elseif noted.err then
  return noted
elseif type(kept) == 'table' then
  return redis.error_reply('WRITTEN ' .. kept.err)
end
return {0}
