-- Appends an entry, as the holder of a token.
--
-- KEYS  those of store.lua, and, with a turn ID, 4 its key
-- ARGV  those of store.lua, and 5 n   6 op   7 how many entries to keep, or '0'   8 input   9 output
--       and, with a turn ID, 10 the ID   11 digest   12 for how long to remember it, in ms
-- Reply {DONE}, {KNOWN}, {CONFLICT}, {TAKEN or STALE, the log's last place}, or {UNOWNED}; see driver.Outcome
--
-- May be repeated: the op tells a copy of a call from another call.
local refusal
if KEYS[4] then
  local known = redis.call('GET', KEYS[4])
  if known and known ~= ARGV[11] then
    return {CONFLICT}
  elseif known then
    show() -- refused or not: what was to be stored has been
    return {KNOWN}
  end
  refusal = add(ARGV[5], ARGV[6], ARGV[7], 'op', ARGV[6], 'in', ARGV[8], 'out', ARGV[9], 'id', ARGV[10])
else
  refusal = add(ARGV[5], ARGV[6], ARGV[7], 'op', ARGV[6], 'in', ARGV[8], 'out', ARGV[9])
end
if refusal then
  return refusal
end
if KEYS[4] then
  redis.call('SET', KEYS[4], ARGV[11], 'PX', ARGV[12])
end
shown('0')
return {DONE}
