-- Puts a staged log in the place of the log, or of none, in one step. Without a staged log it removes
-- all exchanges: a Clear is a Replace by nothing. The mark keeps the place, so Redis refuses earlier
-- writes that come late.
--
-- KEYS, ARGV, Reply: see session.lua.
-- KEYS  5 the staging key
-- ARGV  6 seq   7 op
--       8 identity of the staging; '': a Clear; 'delete': a Delete   9 last place staged
--       10 last place of the log that is staged, or '' for a Fork   11 highest sub-place staged
--       12 places of the pinned exchanges
-- Reply also {AGAIN}: stage from the beginning
local stage, n, op, nonce, place = KEYS[5], ARGV[6], ARGV[7], ARGV[8], fence .. '-' .. ARGV[6]

-- clear removes all exchanges, and a Delete the IDs, too. The mark of a Delete has no op: its copy is
-- known by the place.
local function clear(deletes)
  local refusal
  if there then
    refusal = add(n, nil, 'swap', op) -- a late copy must not remove later exchanges
  else
    refusal = absent(n)
  end
  if refusal then
    local copy = cleared == op
    if deletes then
      copy = top == place
    end
    return refusal[1] == TAKEN and not there and copy and {DONE} or refusal
  end
  -- ⚑ In this order, and the log stays without a mark: the log or the mark refuses older writers.
  revision, pins = 0, '' -- readers see a Clear by the places
  deleted = deletes and fence or deleted
  set_mark(place, 'e', deletes and '' or op) -- a Clear
  if not failed then -- a Clear
    run('UNLINK', log, stage, deletes and KEYS[4] or stage) -- ⚑ the staging key has a copy
  end
  return result()
end

local function swap()
  local refusal = judged(n, op)
  if refusal then
    return refusal
  elseif not is_staged(nonce, ARGV[9]) or (there and place_of_last(log) or '') ~= ARGV[10] then
    return {AGAIN}
  end
  local left = ARGV[9] ~= HEADER -- exchanges are left
  -- ⚑ What may be refused comes first, so that the log stays if it is. The new log has its marker
  -- before it is the log.
  refusal = left and (refused('XADD', stage, place, 'swap', op) or refused('XDEL', stage, HEADER)
    or refused('RENAME', stage, stage))
  if refusal then
    return refusal
  end
  revision, pins = math.max(revision + 1, tonumber(ARGV[11])), ARGV[12]
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
end

if nonce == '' or nonce == 'delete' then
  return clear(nonce == 'delete')
end
return swap()
