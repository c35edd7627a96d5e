-- The queue and the tombstones of a lock. Takes lock, now_ms, ms, write and mint. Gives queue, waiters and
-- tombstones, and the functions below.
--
-- KEYS  1 the lock   2 the queue: owners by ticket (sorted set)
--       3 its waiters (hash), by owner: "<alive until, ms>:<seq>:<channel>:<payload>"
--       4 the tombstones: owners by their end, ms (sorted set)
--
-- ⚑ A script reads all keys first, then writes the record once, and the other keys last. A missing
-- right or data of another program thus stops a script before it has an effect. A later failure
-- undoes nothing.
local queue, waiters, tombstones = KEYS[2], KEYS[3], KEYS[4]

-- has_tombstone reports whether an owner has a tombstone.
local function has_tombstone(owner)
  return tonumber(redis.call('ZSCORE', tombstones, owner) or 0) > now_ms
end

-- tombstone_life is the time to the end of the last tombstone, in ms.
local function tombstone_life()
  return math.max(tonumber(redis.call('ZRANGE', tombstones, -1, -1, 'WITHSCORES')[2] or 0) - now_ms, 0)
end

-- unread_life is how long a record must live if the tombstones are not read.
local function unread_life(r) return r.flagged and math.max(r.keep, r.ttl) or 0 end

-- first returns the first live waiter before an owner with a ticket (0: at the end), and the dead
-- waiters before it. A waiter is dead if its promise or its ownership has ended, or if it is the
-- leaver, which leaves the queue now.
local function first(r, owner, ticket, leaver)
  local dead = {}
  while true do
    local at = redis.call('ZRANGE', queue, #dead, #dead, 'WITHSCORES')
    local id = at[1]
    if not id or id == owner or ticket > 0 and ticket < tonumber(at[2]) then
      return nil, dead
    end
    local alive, seq, notify, payload = string.match(redis.call('HGET', waiters, id) or '', '^(%d+):(%d+):(%w*):(.*)$')
    if alive and #id == 32 and tonumber(alive) > now_ms and id ~= leaver and id ~= r.owner and id ~= r.previous then
      return {id = id, left = tonumber(alive) - now_ms, seq = seq, notify = notify, payload = payload}, dead
    end
    dead[#dead + 1] = id
  end
end

-- set_flag sets or clears the flag. ⚑ The record must outlive the tombstones: without a record, an
-- acquire grants.
local function set_flag(r, flag, life)
  local same = r.flagged == flag
  r.flagged = flag
  if (r.held and r.keep or r.ttl) < life then
    write(r, r.left, life)
  elseif not same then
    redis.call('SETRANGE', lock, BEFORE_STATE, flag and string.upper(r.state) or r.state)
  end
end

local function dequeue(ids)
  for _, id in ipairs(ids) do
    redis.call('ZREM', queue, id)
    redis.call('HDEL', waiters, id)
  end
end

-- grant gives a free record to another owner, and does not write it. It returns nothing, or an
-- error.
local function grant(r, owner, payload)
  local refused = mint(r, 0)
  if refused then
    return refused
  end
  r.ending = r.state == 'r' and r.raw and '!' or '.'
  r.state, r.previous, r.owner, r.payload, r.held = 'h', r.owner, owner, payload, true
end

-- hand_off grants a free lock to a waiter, until its promise ends. It returns nothing, or an error.
local function hand_off(r, to, life)
  local left = math.max(to.left, 1000) -- driver.MinHandoff
  local refused = grant(r, to.id, to.payload)
  if refused then
    return refused
  end
  write(r, left, life)
  to.ttl = ms(left)
end

-- notify notifies the waiter of a handoff. Without the right to publish, the waiter learns of it
-- when it asks.
local function notify(r, to, behind)
  if to.notify ~= '' then
    redis.pcall('PUBLISH', string.match(lock, '^[^{]*') .. 'wake:' .. to.notify,
      table.concat({to.id, to.seq, to.ttl, behind, string.format('%.0f %.0f', r.token, r.last)}, ' '))
  end
end

