-- Puts a staged log in the place of the log, or of none, in one step. The mark keeps the place, so Redis
-- refuses earlier writes that come late.
--
-- KEYS, ARGV, Reply: see access.lua.
-- ARGV  11 seq   12 op   13 identity of the staging   14 last place staged
--       15 last place of the log that is staged, or '' for a Fork   16 highest sub-place staged
--       17 places of the pinned exchanges
-- Reply also {AGAIN}: stage from the beginning
local n, op, staging, staged, copied_to = ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15]
local highest_sub, staged_pins = tonumber(ARGV[16]), ARGV[17]
local place = token .. '-' .. n

local refusal = open() or judged(n, op)
if refusal then
  return refusal
elseif not is_staged(staging, staged) or (has_log and place_of_last(log) or '') ~= copied_to then
  return {AGAIN}
end
local left = staged ~= HEADER -- exchanges are left
-- ⚑ What may be refused comes first, so that the log stays if it is. The new log has its marker
-- before it is the log.
refusal = left and (try('XADD', stage, place, 'swap', op) or try('XDEL', stage, HEADER)
  or try('RENAME', stage, stage))
if refusal then
  return refusal
end
revision, pins = math.max(revision + 1, highest_sub), staged_pins
set_mark(place, left and 'l' or 'e', left and '' or op)
if failed then
  return result()
elseif not left then
  run('UNLINK', log, stage)
  return result()
elseif idle > 0 then
  run('PEXPIRE', stage, idle)
else
  run('PERSIST', stage)
end
if not failed and run('UNLINK', log) then
  run('RENAME', stage, log)
end
return result()
