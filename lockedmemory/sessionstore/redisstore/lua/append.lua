-- Appends an exchange.
--
-- KEYS, ARGV, Reply: see access.lua.
-- ARGV  11 seq   12 op   13, 14 token and seq of storedriver.Access.HistoryUpTo
--       15 field of the ID, or ''   16 digest and place of its record   17 RememberIDs in ms
--       18 '1' for the first access of the lease   19… the entry
local n, op, up_to, up_to_seq = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local id, record, remember, is_first, ENTRY = ARGV[15], ARGV[16], tonumber(ARGV[17]), ARGV[18] == '1', 19
local has_id, now, known, refusal = id ~= '', nil, nil, nil

-- finish is the reply of the last call of a lease, which has stored its exchange.
-- ⚑ No error of the release changes the reply.
local function finish(reply)
  if owner ~= '' and not reply.err then
    local _, answer = pcall(release_lock, lock_key, owner)
    reply[2] = answer == 'released' and answer or nil
  end
  return reply
end

if has_id then
  now = clock()
  known, refusal = known_of(redis.call('HGET', ids, id), now)
  if refusal then
    return refusal
  end
end

-- After the first access of its lease, a SaveOnce needs neither mark nor state: the Stream refuses its
-- place. Most calls inside a turn end here.
if has_id and not known and not is_first then
  local added
  refusal = write_id(id, record, now, remember)
  if not refusal then
    local _, place = try('XADD', log, 'NOMKSTREAM', token .. '-' .. n, unpack(ARGV, ENTRY))
    added = place
  end
  if added then
    written = true
    if idle > 0 then
      run('PEXPIRE', log, idle)
    end
    prune(id, now)
    return result()
  end
  remove_id(id)
  if refusal then
    return refusal
  end
end

refusal = open()
if refusal then
  return refusal
end
if known then
  -- ⚑ A write without an effect, as in session.lua: a read-only replica may know an ID that is deleted.
  refusal = try('HDEL', ids, '')
  if refusal then
    return refusal
  elseif string.sub(known, 1, DIGEST) ~= string.sub(record, 1, DIGEST) then
    return {CONFLICT}
  end
  raise_mark() -- refused or not: the exchange is stored
  return finish({KNOWN})
end

refusal = not has_log and refusal_without_log(n)
if refusal then
  return refusal
elseif not has_log and gone(up_to, up_to_seq) then
  return {GONE}
end

refusal = has_id and write_id(id, record, now, remember)
refusal = refusal or add(n, op, unpack(ARGV, ENTRY))
if refusal then
  if has_id then
    remove_id(id)
  end
  return refusal
end
after_entry(0)
if has_id then
  prune(id, now)
end
return finish(result())
