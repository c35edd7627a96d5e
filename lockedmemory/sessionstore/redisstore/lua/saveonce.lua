-- The ID of a SaveOnce. session.lua and append.lua follow, but most calls inside a turn end here.
--
-- KEYS, ARGV, Reply: see append.lua.
local n, id, ids, remember, has_id = ARGV[6], ARGV[10], KEYS[4], tonumber(ARGV[12]), ARGV[10] ~= ''

-- known is the record of a known ID, without its version and time.
local now, known
if has_id then
  local damage
  now = clock()
  known, damage = known_of(redis.call('HGET', ids, id), now)
  if damage then
    return damage
  end
end

-- ⚑ The script writes the ID first, and can remove it without another right. So no entry stays
-- without its ID. The key lives somewhat longer than the ID, so that few calls renew its TTL.
local function write_id()
  local life = redis.call('PTTL', ids)
  local reply = try('HSET', ids, id, string.format('%s%013.0f', VERSION, now + remember) .. ARGV[11])
  if type(reply) == 'number' and life < remember then
    reply = try('PEXPIRE', ids, remember + math.floor(remember / 32))
  end
  return type(reply) == 'table' and reply
end

-- HDEL leaves no key without a TTL if the right to PEXPIRE is missing. Without the right to HDEL, a record
-- stays that has expired.
local function remove_id()
  if type(try('HDEL', ids, id)) == 'table' then
    try('HSET', ids, id, VERSION .. string.rep('0', RECORD - 1))
  end
end

-- prune removes expired IDs. One new ID in 8, by its hash, checks 32 IDs. That is cheaper than 4
-- each time.
local function prune()
  if string.byte(id) >= 32 then
    return
  end
  local some = run('HRANDFIELD', ids, 32, 'WITHVALUES') or {}
  for i = 1, #some, 2 do
    if (expires(some[i + 1]) or now + 1) <= now then
      run('HDEL', ids, some[i])
    end
  end
end

-- After the first access of its lease, a SaveOnce needs neither mark nor state: the Stream refuses its
-- place.
if has_id and not known and ARGV[13] == '0' then
  local refusal = write_id()
  if not refusal and type(try('XADD', log, 'NOMKSTREAM', fence .. '-' .. n, unpack(ARGV, 14))) == 'string' then
    written = true
    if idle > 0 then
      run('PEXPIRE', log, idle)
    end
    prune()
    return result()
  end
  remove_id()
  if refusal then
    return refusal
  end
end
