-- Serves a request, see store.go. The functions of redisconn.CallsLua stand before it.
--
-- KEYS  the session: its header and its state; its records; the states of the app and of the user;
--       the index of the app: all sessions by name; the expiries of sessions, in ms
-- ARGV  1 operation; 2 token, or 0; 3 IdleTTL in ms, or 0; 4 the name in both indexes; 5 op;
--       6 the op before it; 7 the record; 8 how many of the last records to read; 9 since, or 0;
--       then the keys and values of states
--
-- Reply {STALE, mark}, {outcome, 0}, or {DONE, µs of the last create or append}. To get and create, the last
-- op, the number of records, the hashes of app, user and session, and records follow.
--
-- An error WRITTEN … says that something was written: a record without a step of the header that makes it
-- visible, or an expiry without its header, or the reverse. The script may be sent again, except for create
-- and delete.
local MISSING, STALE, AHEAD, EXISTS, ENDED = 1, 2, 3, 4, 5
local SESSION, RECORDS, APP, USER, INDEX, EXPIRIES = unpack(KEYS)
local operation, token, life, member = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local op, before, record, recent, since = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

-- The fields of the header: n number of records, m mark, o the last op, u the µs of the last create or
-- append, x the token of the last stop. A field k… of a hash is a key of a state.
local header = redis.call('HMGET', SESSION, 'n', 'm', 'o', 'u', 'x')
local n, mark, stopped = tonumber(header[1] or 0), tonumber(header[2] or 0), tonumber(header[5] or 0)
local last, updated = header[3], tonumber(header[4] or 0)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function digits(number) return string.format('%.0f', number) end

if operation == 'delete' then
  run('UNLINK', SESSION, RECORDS)
  run('ZREM', INDEX, member)
  run('ZREM', EXPIRIES, member)
  return failed and result() or {DONE, 0}
elseif not last then
  if operation ~= 'create' then return {MISSING, 0} end
elseif op == last then
  return {DONE, updated} -- ⚑ first of all: an earlier copy has stored the event
elseif since > 0 and since < stopped then
  return {ENDED, 0} -- ⚑ before the others: the error says why
elseif operation == 'create' then
  return {EXISTS, 0}
elseif token > 0 and token < mark then
  return {STALE, mark}
elseif operation == 'append' and before ~= last then
  return {AHEAD, 0} -- ⚑ not equal, whatever the number
end

if operation == 'append' then
  local torn = redis.call('LLEN', RECORDS) - n -- records of appends that failed
  if torn > 0 and not run('RPOP', RECORDS, torn) then return result() end
  if not run('RPUSH', RECORDS, record) then return result() end
  n, last, updated = n + 1, op, now
elseif operation == 'create' then
  -- ⚑ A header without an op is from a create that failed: its state must not become that of this session.
  -- Only a key that is there is removed: Redis checks its memory at the first write of a script, and a
  -- removal passes that check.
  if redis.call('EXISTS', SESSION, RECORDS) > 0 then run('UNLINK', SESSION, RECORDS) end
  n, last, updated = 0, op, now
end
for i = 10, #ARGV, 2 do
  local key = ARGV[i]
  run('HSET', string.find(key, '^app:') and APP or string.find(key, '^user:') and USER or SESSION, 'k' .. key, ARGV[i + 1])
end
if operation == 'create' then
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', '(' .. digits(math.floor(now / 1000)), 'LIMIT', 0, 4)) do
    run('ZREM', INDEX, old)
    run('ZREM', EXPIRIES, old)
  end
  run('ZADD', INDEX, 0, member)
end
if failed then return result() end -- ⚑ no event without its state
if operation ~= 'get' or token > 0 then
  -- The header makes the step visible. ⚑ Without IdleTTL, the expiry goes: a session that was begun with one
  -- would expire in use.
  run('HSET', SESSION, 'n', digits(n), 'm', digits(math.max(mark, token)), 'o', last, 'u', digits(updated),
    'x', digits(operation == 'stop' and token or stopped))
  if failed then return result() end -- ⚑ without memory, nothing was written yet, and the next line would
  if life > 0 then
    local at = digits(math.floor(now / 1000) + life)
    run('PEXPIREAT', SESSION, at)
    run('PEXPIREAT', RECORDS, at)
    run('ZADD', EXPIRIES, at, member)
  else
    run('PERSIST', SESSION)
    run('PERSIST', RECORDS)
    run('ZREM', EXPIRIES, member)
  end
  if failed then return result() end
end
if operation == 'append' or operation == 'stop' then return {DONE, updated} end

recent = math.min(n, recent)
local app, user, own = run('HGETALL', APP), run('HGETALL', USER), run('HGETALL', SESSION)
local records = recent > 0 and run('LRANGE', RECORDS, n - recent, n - 1) or {}
if failed then return result() end -- ⚑ a create has written, and a get is refused
return {DONE, updated, last, n, app, user, own, records}
