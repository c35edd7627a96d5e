-- The turn ID of a Save. session.lua and append.lua follow, but most Saves inside a turn end here.
--
-- KEYS, ARGV, Reply: see append.lua.
local n, id, ids, remember = ARGV[6], ARGV[10], KEYS[4], tonumber(ARGV[13])

-- known_item is the item of a known number. A new number has none, but a new record.
local now, old_record, known_item, new_record
if id ~= '' then
  now, old_record = clock(), redis.call('HGET', ids, id)
  local items, damage = items_of(old_record, now)
  if damage then
    return damage
  end
  local at = ITEM * (ARGV[11] - 1)
  if #items > at then
    known_item = string.sub(items, at + 1, at + ITEM)
  else
    new_record = string.format('%013.0f', now + remember) .. items .. string.rep('-', at - #items) .. ARGV[12]
  end
end

-- ⚑ The script writes the ID first, and can remove it without another right. So no entry stays
-- without its ID. The key lives somewhat longer than the ID, so that few Saves renew its TTL.
local function write_id()
  local life = redis.call('PTTL', ids)
  local reply = try('HSET', ids, id, new_record)
  if type(reply) == 'number' and life < remember then
    reply = try('PEXPIRE', ids, remember + math.floor(remember / 32))
  end
  return type(reply) == 'table' and reply
end

-- HDEL leaves no key without a TTL if the right to PEXPIRE is missing.
local function restore_id()
  if old_record or type(try('HDEL', ids, id)) == 'table' then
    try('HSET', ids, id, old_record or string.rep('0', UNTIL))
  end
end

-- prune removes expired IDs. One new ID in 8, by its hash, checks 32 IDs. That is cheaper than 4
-- each time.
local function prune()
  if old_record or string.byte(id) >= 32 then
    return
  end
  local some = run('HRANDFIELD', ids, 32, 'WITHVALUES') or {}
  for i = 1, #some, 2 do
    if (expires(some[i + 1]) or now + 1) <= now then
      run('HDEL', ids, some[i])
    end
  end
end

-- After the first access of its lease, a Save needs neither mark nor state: the Stream refuses its
-- place.
if new_record and ARGV[14] == '0' then
  local refusal = write_id()
  if not refusal and type(try('XADD', log, 'NOMKSTREAM', fence .. '-' .. n, unpack(ARGV, 15))) == 'string' then
    written = true
    if idle > 0 then
      run('PEXPIRE', log, idle)
    end
    prune()
    return result()
  end
  restore_id()
  if refusal then
    return refusal
  end
end
