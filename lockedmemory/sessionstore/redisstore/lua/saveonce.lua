-- The IDs of a session. ids.lua has the form of a record.

-- ⚑ The script writes the ID first, and can remove it without another right. So no entry stays
-- without its ID. The key lives somewhat longer than the ID, so that few calls renew its TTL.
local function write_id(id, record, now, remember)
  local life = redis.call('PTTL', ids)
  local refusal = try('HSET', ids, id, string.format('%s%013.0f', VERSION, now + remember) .. record)
  if not refusal and life < remember then
    refusal = try('PEXPIRE', ids, remember + math.floor(remember / 32))
  end
  return refusal
end

-- remove_id puts a record back, or none. HDEL leaves no key without a TTL if the right to PEXPIRE is missing.
-- Without the right to HDEL, a record stays that has expired.
local function remove_id(id, before)
  if before then
    try('HSET', ids, id, before)
  elseif try('HDEL', ids, id) then
    try('HSET', ids, id, VERSION .. string.rep('0', RECORD - 1))
  end
end

-- prune removes expired IDs. One new ID in 8, by its hash, checks 32 IDs. That is cheaper than 4
-- each time.
local function prune(id, now)
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
