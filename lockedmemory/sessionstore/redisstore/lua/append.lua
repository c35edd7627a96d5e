-- Appends an exchange that inturn.lua has not appended. Without IDs, exchange.lua and session.lua suffice.
--
-- KEYS, ARGV, Reply: see exchange.lua.

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
if decided ~= DONE then
  -- ⚑ A write without an effect, as in session.lua: a read-only replica may know an ID that is deleted.
  refusal = try('HDEL', ids, '')
  if refusal then
    return refusal
  elseif same <= last - FIRST and (last > FIRST or decided == KNOWN) then
    return {CONFLICT}
  end
  raise_mark() -- refused or not: the IDs are decided
  return finish({decided})
end

refusal = not has_log and refusal_without_log(n)
if refusal then
  return refusal
elseif not has_log and gone(up_to, up_to_seq) then
  return {GONE}
end

for i = FIRST, last do
  refusal = refusal or write_id(ARGV[i], record, now, remember)
end
refusal = refusal or add(n, op, unpack(ARGV, final + 1))
if refusal then
  for i = FIRST, last do
    remove_id(ARGV[i], before[i])
  end
  return refusal
end
after_entry(0)
for i = FIRST, final do
  if i > last and look(ARGV[i]) == DONE then
    keep(ARGV[i], '>')
  end
  prune(ARGV[i], now)
end
if last >= FIRST then -- ⚑ last: the item of an open message stays
  run('HDEL', inbox, unpack(ARGV, FIRST, final))
end
return finish(result())
