-- Appends an entry, as the holder of a token.
--
-- KEYS  1 the log   2 the guard   3 the turn ID's key, if there is one
-- ARGV  1 token   2 '1' if the guard is the lock   3 for how long the log is kept, in ms, or '0'   4 for how long the guard is
--       5 n   6 op   7 how many entries to keep, or '0'   8 input   9 output
--       and, with a turn ID, 10 the ID   11 digest   12 for how long to remember it, in ms
-- Reply {DONE}, {KNOWN}, {CONFLICT}, {TAKEN or STALE, the log's last place}, or {UNOWNED}; see driver.Outcome
--
-- May be repeated: the op tells a copy of a call from another call.
local log, guard, fence = KEYS[1], KEYS[2], ARGV[1]
local fields = {'op', ARGV[6], 'in', ARGV[8], 'out', ARGV[9]}
if KEYS[3] then
  local known = redis.call('GET', KEYS[3])
  if known and known ~= ARGV[11] then
    return {CONFLICT}
  elseif known then
    show(log, guard, ARGV[2], fence, ARGV[3], ARGV[4]) -- refused or not: what was to be stored has been
    return {KNOWN}
  end
  fields[7], fields[8] = 'id', ARGV[10]
end
local last = last_of(log)
local refusal = add(log, guard, ARGV[2], ARGV[7], fence, ARGV[5], ARGV[6], fields)
if refusal then
  return refusal
end
if KEYS[3] then
  redis.call('SET', KEYS[3], ARGV[11], 'PX', ARGV[12])
end
tidy(log, last)
used(log, guard, ARGV[2], fence, ARGV[3], ARGV[4])
return {DONE}
