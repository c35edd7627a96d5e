-- An acquire in all cases. Takes raw, time, now, and the functions of record.lua and queue.lua.
local owner, alive = ARGV[1], ARGV[4]

local r, refused = read(raw)
if refused then
  return refused
end
-- An unflagged record has no queue and no tombstones, so most requests read the record alone. ⚑ A
-- request that waits reads all: a hand may have deleted the record.
local with_queue = queue ~= nil and (alive ~= nil or r.flagged)

local function grant_reply(waiters) return string.format('%016.0f%016.0f%.0f', r.token, r.last, waiters) end

if r.held and r.owner == owner then
  redis.call('PEXPIRE', lock, ms(math.max(ARGV[2], r.left or 0) + r.keep))
  return grant_reply(with_queue and redis.call('ZCARD', queue) or 0)
end
if r.owner == owner or r.previous == owner or with_queue and has_tombstone(owner) then
  redis.call('GETEX', lock) -- ⚑ a write command, so that no read-only replica answers
  return {'cancelled'}
end

local waiting, life, ticket = 0, unread_life(r), nil
if with_queue then
  waiting, life = redis.call('ZCARD', queue), tombstone_life()
  ticket = tonumber(redis.call('ZSCORE', queue, owner) or nil)
end

-- No request overtakes the queue: a free lock goes to its first waiter.
if not r.held then
  local to, dead
  if waiting > 0 then
    to, dead = first(r, owner, tonumber(ARGV[6] or 0), nil)
    waiting = waiting - #dead
  end
  if not to then
    refused = grant(r, owner, ARGV[3])
    if refused then
      return refused
    end
    if with_queue then
      waiting = waiting - (ticket and 1 or 0)
      r.flagged = waiting > 0 or life > 0
    end
    write(r, tonumber(ARGV[2]), life)
    if dead then
      dead[#dead + 1] = owner
      pcall(dequeue, dead)
    end
    return grant_reply(waiting)
  end
  waiting = waiting - 1
  r.flagged = waiting > 0 or life > 0 or alive ~= nil
  refused = hand_off(r, to, life)
  if refused then
    return refused
  end
  dead[#dead + 1] = to.id
  pcall(dequeue, dead)
  notify(r, to, waiting)
  if not alive then
    return {'busy', r.raw, r.ttl, time[1], time[2], waiting, 0}
  end
end
if with_queue and not r.flagged then
  set_flag(r, true, life) -- ⚑ before an owner enters the queue, and after an operator has deleted the record
end
local shown = {'busy', r.raw, r.ttl, time[1], time[2], waiting, 0}

if not alive or not with_queue then
  redis.call('GETEX', lock) -- ⚑ as above
  return shown
end

-- The owner enters the queue, or stays there.
local until_ms = now_ms + tonumber(alive)
if ticket then
  local promised = string.match(redis.call('HGET', waiters, owner) or '', '^%d+')
  until_ms = math.max(until_ms, tonumber(promised or 0))
elseif waiting >= 1000 then -- driver.MaxQueue
  redis.call('GETEX', lock) -- ⚑ as above
  local entries, dead = redis.call('HGETALL', waiters), {}
  for i = 1, #entries, 2 do
    if tonumber(string.match(entries[i + 1], '^%d+') or 0) <= now_ms then
      dead[#dead + 1] = entries[i]
    end
  end
  dequeue(dead)
  waiting = redis.call('ZCARD', queue)
  if waiting >= 1000 then
    shown[1], shown[6] = 'full', waiting
    return shown
  end
end
if not ticket then
  ticket = tonumber(ARGV[6])
  if ticket == 0 then
    ticket = math.max(now, tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0) + 1)
  end
  redis.call('ZADD', queue, ms(ticket), owner)
  waiting = waiting + 1
end
redis.call('HSET', waiters, owner, ms(until_ms) .. ':' .. ARGV[5] .. ':' .. ARGV[7] .. ':' .. ARGV[3])
local keep = until_ms - now_ms + 1000 -- the queue expires after the last promise
for _, key in ipairs({queue, waiters}) do
  if redis.call('PTTL', key) < keep then
    redis.call('PEXPIRE', key, ms(keep))
  end
end
shown[6], shown[7] = waiting, ticket
return shown
