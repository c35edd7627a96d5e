-- Forgets all entries, as the holder of a token. What is written under a lower token is refused from now on, and so is what
-- was written before under this one and comes late.
--
-- KEYS are those of store.lua.
-- ARGV  those of store.lua, and 5 n   6 op
-- Reply {DONE}, {TAKEN or STALE, the log's last place}, or {UNOWNED};
--       the error WRITTEN … if a command failed after the first write
--
-- May be repeated: the op tells a copy of a call from another call.
local refusal = add(ARGV[5], ARGV[6], '0', 'clear', ARGV[6])
if refusal then
  return refusal
end
after('XTRIM', log, 'MINID', fence .. '-' .. ARGV[5])
shown(ARGV[5])
return done()
