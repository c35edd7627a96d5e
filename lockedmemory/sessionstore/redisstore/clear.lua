-- Forgets all entries, as the holder of a token. What is written under a lower token is refused from now on, and so is what
-- was written before under this one and comes late.
--
-- KEYS  1 the log   2 the guard
-- ARGV  1 token   2 '1' if the guard is the lock   3 for how long the log is kept, in ms, or '0'   4 for how long the guard is
--       5 n   6 op
-- Reply {DONE}, {TAKEN or STALE, the log's last place}, or {UNOWNED}
--
-- May be repeated: the op tells a copy of a call from another call.
local log, guard, fence = KEYS[1], KEYS[2], ARGV[1]
local refusal = add(log, guard, ARGV[2], '0', fence, ARGV[5], ARGV[6], {'clear', ARGV[6]})
if refusal then
  return refusal
end
redis.call('XTRIM', log, 'MINID', fence .. '-' .. ARGV[5])
used(log, guard, ARGV[2], fence, ARGV[3], ARGV[4])
return {DONE}
