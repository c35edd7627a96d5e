-- Asks the holder of a lock to end its work. Takes time, now, and the functions of record.lua and
-- queue.lua.
--
-- KEYS  1 the lock
-- ARGV  1 shown token of the grant to ask, or 0   2 its work, or ''   3 floor
-- Reply {'asked', token of the ask, and the record before: text, PTTL, server's s, µs}
--       {'not asked', shown token, the same}      another grant; nothing was written
--       {'not asked', token that was reserved, and the same of a free record}
--       the errors FOREIGN, FENCE, FLOOR: nothing was written
--
-- A repetition of an ask of a work asks again. ⚑ A later grant has another token, so no late copy asks it.
-- The owner keeps its token, and its remaining time.
local r, refused = read(redis.call('GETEX', lock)) -- ⚑ a write command, so that no read-only replica answers
if refused then
  return refused
elseif ARGV[3] - now > 31536000000000 then -- driver.FloorAhead, µs
  return redis.error_reply('FLOOR the floor of the fencing token is more than a year ahead of this server\'s clock')
end
local reply, token = {'not asked', shown(r), r.raw, r.ttl, time[1], time[2]}, r.token
-- A work is a hash. JSON escapes the quotes of a text, so no text has the key.
local is_work = ARGV[2] ~= '' and string.find(r.payload, '"work":"' .. ARGV[2] .. '"', 1, true)
if r.held and reply[2] ~= tonumber(ARGV[1]) and not is_work then
  return reply
end
refused = mint(r, tonumber(ARGV[3]))
if refused then
  return refused
end
reply[2], r.token, r.last = r.token, token, r.token
if r.held then
  local rest = string.gsub(string.sub(r.payload, 2), '^"a":"%d+",?', '')
  r.payload = '{"a":"' .. ms(r.last) .. (rest == '}' and '"' or '",') .. rest
  write(r, r.left, unread_life(r))
  redis.pcall('PUBLISH', string.match(lock, '^[^{]*') .. 'asks', r.owner)
  reply[1] = 'asked'
else
  write(r, 0, unread_life(r)) -- the token is remembered from now on
  reply[3], reply[4] = r.raw, r.ttl
end
return reply
