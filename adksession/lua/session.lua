-- The session. The fields of its header: n number of records, m mark, o the last op, u the µs of
-- the last create or append. A field k… is a key of its state.
local header = redis.call('HMGET', SESSION, 'n', 'm', 'o', 'u')
local n, mark = tonumber(header[1] or 0), tonumber(header[2] or 0)
local last, updated = header[3], tonumber(header[4] or 0)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function digits(number) return string.format('%.0f', number) end

-- refusal returns the reply to a call that does not fit the session.
local function refusal()
  if not last then return {MISSING, 0} end
  if token > 0 and token < mark then return {STALE, mark} end
end

-- put writes the scopes, keys and values that begin at an argument. The script ends if one fails.
local function put(first)
  local keyOf = {a = APP, u = USER, s = SESSION}
  for i = first, #ARGV, 3 do
    local scope = ARGV[i]
    run('HSET', keyOf[scope], (scope == 's' and 'k' or '') .. ARGV[i + 1], ARGV[i + 2])
  end
end

-- keep writes fields of the header, which makes a step visible, and then the expiry. ⚑ Without IdleTTL it
-- takes the expiry away: a session that was begun with one would expire in use.
local function keep(...)
  if not run('HSET', SESSION, 'm', digits(math.max(mark, token)), ...) then return end
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
end

-- whole is the reply {DONE, µs of the last create or append, op, n, scopes, keys and values, records}.
local function whole(records)
  local values = {}
  local function add(scope, key, prefix)
    local hash = redis.call('HGETALL', key)
    for i = 1, #hash, 2 do
      if string.sub(hash[i], 1, #prefix) == prefix then
        table.insert(values, scope)
        table.insert(values, string.sub(hash[i], #prefix + 1))
        table.insert(values, hash[i + 1])
      end
    end
  end
  add('a', APP, '')
  add('u', USER, '')
  add('s', SESSION, 'k')
  return {DONE, updated, last, n, values, records}
end
