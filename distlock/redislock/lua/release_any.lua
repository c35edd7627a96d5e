-- A release in all cases. Takes raw, now_ms, and the functions of record.lua and queue.lua.
local owner, tombstone = ARGV[1], tonumber(ARGV[2] or 0)
local leaves_queue = tombstone > 0 or ARGV[3] == '1'

local r, refused = read(raw)
if refused then
  return refused
end
if ARGV[4] then
  if not r.held or tonumber(ARGV[4]) ~= shown(r) then
    return 'not held'
  end
  owner = r.owner
end
local ends_grant = r.held and r.owner == owner
local answer = 'not held'
if ends_grant or r.owner == owner and r.state == 'r' or r.previous == owner and r.ending == '!' then
  answer = 'released'
end
if ends_grant then
  r.state, r.held = 'r', false
end

-- ⚑ The lock is released despite data of another program in its queue, or a missing right.
local to, dead, waiting, life = nil, {}, 0, unread_life(r)
local seen, problem = pcall(function()
  waiting, life = redis.call('ZCARD', queue), math.max(tombstone_life(), tombstone)
  if not r.held then
    to, dead = first(r, nil, 0, leaves_queue and owner or nil)
  end
  if leaves_queue and redis.call('ZSCORE', queue, owner) then
    local there = false
    for _, id in ipairs(dead) do
      there = there or id == owner
    end
    if not there then
      dead[#dead + 1] = owner
    end
  end
  waiting = waiting - #dead - (to and 1 or 0)
end)

local flag = r.flagged
if seen then
  flag = waiting > 0 or life > 0
end
if to then
  local flagged = r.flagged
  r.flagged = flag
  if hand_off(r, to, life) then
    to, r.flagged = nil, flagged -- no token is left: release the lock at least
  else
    dead[#dead + 1] = to.id
  end
end
if not to then
  if ends_grant then
    r.flagged = flag
    r.payload = #r.payload <= 64 and r.payload or '' -- no long payload stays for a day
    write(r, 0, life)
  elseif r.raw or tombstone > 0 then
    set_flag(r, flag, life)
  end
end
if not seen and tombstone > 0 then
  return type(problem) == 'table' and problem or redis.error_reply(problem)
end
pcall(dequeue, dead)
if to then
  notify(r, to, waiting)
end
if tombstone > 0 then
  redis.call('ZREMRANGEBYSCORE', tombstones, '-inf', ms(now_ms))
  local ends_at = math.max(now_ms + tombstone, tonumber(redis.call('ZSCORE', tombstones, owner) or 0))
  redis.call('ZADD', tombstones, ms(ends_at), owner)
  if redis.call('ZCARD', tombstones) > 1000 then
    local sooner = redis.call('ZRANGE', tombstones, 0, 1) -- remove the first to end, but not the new one
    redis.call('ZREM', tombstones, sooner[1] == owner and sooner[2] or sooner[1])
  end
  if redis.call('PTTL', tombstones) < ends_at - now_ms then
    redis.call('PEXPIRE', tombstones, ms(ends_at - now_ms))
  end
end
return answer
