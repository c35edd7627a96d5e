-- Grants a lock to an owner if nobody holds it, or lets the owner stand in line.
--
-- KEYS  1 the lock   2 the name's counter   3 the line   4 who stands in it   5 the mark of this owner, if it was cancelled
-- ARGV  1 owner   2 TTL in ms   3 lowest fence allowed   4 payload: what the holder wants others to see
--       and, if need be, 5 '1': only raise the fence of an owner that holds the lock; 2 and 4 are not used
--       and, to stand in line, 6 for how many ms   7 seq   8 ticket to enter with, or '0'   9 whom to wake, or ''
-- Reply {1, lock's value, with or without the payload, and how many stand in line}     granted, now or before
--       {0, lock's value, its PTTL, server's s, and µs, how many stand in line, ticket}  held by another owner
--       {3, the same}                                        likewise, and the line is full
--       {2}                                                  this owner was cancelled, or its grant is over
-- Error FOREIGN, FENCE, FLOOR: nothing was written
--
-- May be repeated: the owner that holds the lock is given its stored grant and at least the TTL, never less than is left:
-- a copy that comes late must not take back what an extend has given. Who stands in line keeps its ticket, and the longest
-- promise it has made.
local owner = ARGV[1]

-- stand puts the owner in line, or keeps it there. It returns the reply's code, and the ticket.
local function stand(time)
  local at = now(time)
  local alive = at + tonumber(ARGV[6])
  local ticket = tonumber(redis.call('ZSCORE', KEYS[3], owner) or nil)
  if ticket then
    local promised = string.match(redis.call('HGET', KEYS[4], owner) or '', '^%d+')
    alive = math.max(alive, tonumber(promised or '0'))
  else
    if redis.call('ZCARD', KEYS[3]) >= 1000 then -- driver.MaxQueue
      local entries = redis.call('HGETALL', KEYS[4])
      for i = 1, #entries, 2 do
        if tonumber(string.match(entries[i + 1], '^%d+') or '0') <= at then
          redis.call('ZREM', KEYS[3], entries[i])
          redis.call('HDEL', KEYS[4], entries[i])
        end
      end
      if redis.call('ZCARD', KEYS[3]) >= 1000 then
        return 3, ''
      end
    end
    ticket = tonumber(ARGV[8])
    if ticket == 0 then
      local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
      ticket = math.max(time[1] * 1000000 + time[2], tonumber(last or '0') + 1)
    end
    redis.call('ZADD', KEYS[3], string.format('%.0f', ticket), owner)
  end
  redis.call('HSET', KEYS[4], owner, string.format('%.0f', alive) .. ':' .. ARGV[7] .. ':' .. ARGV[9] .. ':' .. ARGV[4])
  -- When all have gone without a word, the line goes too.
  local keep = alive - at + 1000
  if redis.call('PTTL', KEYS[3]) < keep then
    redis.call('PEXPIRE', KEYS[3], string.format('%.0f', keep))
    redis.call('PEXPIRE', KEYS[4], string.format('%.0f', keep))
  end
  return 0, string.format('%.0f', ticket)
end

-- A floor that far ahead is a damaged mark. It would leave the name no room for further tokens.
if ARGV[3] ~= '0' then
  local at = redis.call('TIME')
  if ARGV[3] - (at[1] * 1000000 + at[2]) > 31536000000000 then -- driver.FloorAhead, µs
    return redis.error_reply('FLOOR the floor of the fencing token is more than a year ahead of this server\'s clock')
  end
end
local stored = redis.call('MGET', KEYS[1], KEYS[2], KEYS[5])
local held, counter = stored[1], stored[2]
local holds = false -- and is to be given another token
local shown         -- the payload of an owner that holds
if held and string.sub(held, 4, 4 + #owner) == owner .. ':' then
  if ARGV[5] ~= '1' and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  local s, us, was_ahead
  s, us, was_ahead, shown = string.match(held, '^(%d+):(%d+):(%d+):(.*)$', 5 + #owner)
  if ARGV[5] ~= '1' or s * 1000000 + us + was_ahead >= tonumber(ARGV[3]) then
    return {1, held, redis.call('ZCARD', KEYS[3])}
  end
  holds = true
elseif ARGV[5] == '1' or stored[3] then
  return {2}
end
local time = redis.call('TIME')

-- Nobody overtakes the line: a lock that is free goes to the first in it.
local lined = not holds and redis.call('EXISTS', KEYS[3]) == 1
while lined and not held do
  local to = first(now(time), owner, tonumber(ARGV[8] or '0'))
  if not to then
    break
  end
  local value, refused = hand_over(time, counter, to)
  if refused then
    return redis.error_reply(refused)
  end
  held = value
end

if held and not holds then
  local code, ticket = 0, ''
  if ARGV[6] then
    if counter and string.find(counter, ':' .. owner, 1, true) then
      return {2}
    end
    code, ticket = stand(time)
  end
  return {code, held, redis.call('PTTL', KEYS[1]), time[1], time[2], redis.call('ZCARD', KEYS[3]), ticket}
end

local grant, next, keep = mint(time, counter, ARGV[3], owner, holds)
if not grant then
  return next and redis.error_reply(next) or {2}
end
local value = 'b1:' .. owner .. ':' .. grant
if holds then
  redis.call('SET', KEYS[1], value .. shown, 'KEEPTTL')
-- MGET shows a key of another type as absent; NX then refuses it.
elseif not redis.call('SET', KEYS[1], value .. ARGV[4], 'NX', 'PX', ARGV[2]) then
  return redis.error_reply('FOREIGN the lock has another type')
end
if counter then
  redis.call('SET', KEYS[2], next, 'EX', keep)
elseif not redis.call('SET', KEYS[2], next, 'NX', 'EX', keep) then
  if not holds then
    redis.call('DEL', KEYS[1])
  end
  return redis.error_reply('FOREIGN the counter of the lock has another type')
end
if not lined then
  return {1, value}
end
redis.call('ZREM', KEYS[3], owner)
redis.call('HDEL', KEYS[4], owner)
return {1, value, redis.call('ZCARD', KEYS[3])}
