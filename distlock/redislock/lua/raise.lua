-- Raises the token of a holder to at least a floor. Takes now, and the functions of record.lua and
-- queue.lua.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 floor
-- Reply {'held', token, last token of the block}; {'not held'}, which is final; or the errors
-- FOREIGN, FENCE, FLOOR
--
-- May be repeated: a token that reaches the floor stays. The remaining time never changes.
local r, refused = read(redis.call('GETEX', lock)) -- ⚑ a write command, so that no read-only replica answers
local floor = tonumber(ARGV[2])
if refused then
  return refused
elseif floor - now > 31536000000000 then -- driver.FloorAhead, µs
  return redis.error_reply('FLOOR the floor of the fencing token is more than a year ahead of this server\'s clock')
elseif not r.held or r.owner ~= ARGV[1] then
  return {'not held'}
end
if r.token < floor then
  refused = mint(r, floor)
  if refused then
    return refused
  end
  write(r, r.left, unread_life(r))
end
return {'held', r.token, r.last}
