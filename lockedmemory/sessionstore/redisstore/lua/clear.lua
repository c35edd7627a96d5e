-- Removes all exchanges, and for a Delete the IDs and the inbox, too. The mark keeps the place, so Redis
-- refuses earlier writes that come late.
--
-- KEYS, ARGV, Reply: see access.lua.
-- KEYS  6 the inbox
-- ARGV  11 seq   12 op   13 '1' for a Delete
local n, op, deletes = ARGV[11], ARGV[12], ARGV[13] == '1'
local place = token .. '-' .. n

local refusal = open()
if refusal then
  return refusal
elseif has_log then
  refusal = add(n, nil, 'swap', op) -- a late copy must not remove later exchanges
else
  refusal = refusal_without_log(n)
  -- The mark of a Delete has no op: its copy is known by the place.
  local is_copy = cleared == op
  if deletes then
    is_copy = mark_place == place
  end
  if refusal and refusal[1] == TAKEN and is_copy then
    return {DONE}
  end
end
if refusal then
  return refusal
end
-- ⚑ In this order, and the log stays without a mark: the log or the mark refuses older writers.
revision, pins = (revision + 1) % 499999, '' -- half of the sub-places are free then
deleted = deletes and token or deleted
set_mark(place, 'e', deletes and '' or op)
if not failed then
  run('UNLINK', log, stage, deletes and ids or stage, deletes and KEYS[6] or stage) -- ⚑ the staging key has a copy
end
return result()
