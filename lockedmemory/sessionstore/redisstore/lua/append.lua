-- Appends an exchange that inturn.lua has not appended.
--
-- KEYS, ARGV, Reply: see inturn.lua.

-- finish is the reply of the last call of a lease, which has stored its exchange.
-- ⚑ No error of the release changes the reply.
local function finish(reply)
  if owner ~= '' and not reply.err then
    local _, answer = pcall(release_lock, lock_key, owner)
    reply[2] = answer == 'released' and answer or nil
  end
  return reply
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
  elseif outcome == KNOWN and string.sub(known, 1, DIGEST) ~= string.sub(record, 1, DIGEST) then
    return {CONFLICT}
  end
  raise_mark() -- refused or not: the ID is decided
  return finish({outcome})
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
    remove_id(id, before)
  end
  return refusal
end
after_entry(0)
if has_id then
  prune(id, now)
end
return finish(result())
