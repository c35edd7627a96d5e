-- Appends an entry, as the holder of a token.
--
-- KEYS  those of store.lua, and, with a turn ID, 4 its key
-- ARGV  those of store.lua, and 5 n   6 op   7 how many entries to keep, or '0'   8 input   9 output
--       10 '1' if the token may not have been shown
--       and, with a turn ID, 11 the ID   12 digest   13 for how long to remember it, in ms
-- Reply {DONE}, {KNOWN}, {CONFLICT}, {TAKEN or STALE, the log's last place}, or {UNOWNED};
--       see driver.Outcome; the error WRITTEN … if the entry stands and a later command failed
--
-- May be repeated: the op tells a copy of a call from another call.
local refusal
if KEYS[4] then
  local known = redis.call('GET', KEYS[4])
  if known and known ~= ARGV[12] then
    return {CONFLICT}
  elseif known then
    show() -- refused or not: what was to be stored has been
    return {KNOWN}
  end
  refusal = add(ARGV[5], ARGV[6], ARGV[7], 'op', ARGV[6], 'in', ARGV[8], 'out', ARGV[9], 'id', ARGV[11])
else
  refusal = add(ARGV[5], ARGV[6], ARGV[7], 'op', ARGV[6], 'in', ARGV[8], 'out', ARGV[9])
end
if refusal then
  return refusal
end
if KEYS[4] then
  -- Where the right to do that is missing, the entry must not stay: each repetition would add another one. Its place is used up.
  local noted = try('SET', KEYS[4], ARGV[12], 'PX', ARGV[13])
  if noted.err then
    after('XDEL', log, fence .. '-' .. ARGV[5])
    if failed then
      return done()
    end
    if ARGV[3] ~= '0' then
      after('PEXPIRE', log, ARGV[3])
    end
    return noted
  end
end
if ARGV[10] == '1' then
  shown('0')
elseif ARGV[3] ~= '0' then
  after('PEXPIRE', log, ARGV[3])
end
return done()
