-- Appends an exchange.
--
-- KEYS, ARGV, Reply: see session.lua.
-- ARGV  6 seq   7 op   8, 9 token and seq of storedriver.Access.HistoryUpTo
--       10 field of the ID, or ''   11 digest and place of its record   12 RememberIDs in ms
--       13 '1' for the first access of the lease   14… the entry

-- ⚑ A write without an effect, as in session.lua: a read-only replica may know an ID that is deleted.
local writes = known and try('HDEL', ids, '')
if type(writes) == 'table' then
  return writes
elseif known and string.sub(known, 1, DIGEST) ~= string.sub(ARGV[11], 1, DIGEST) then
  return {CONFLICT}
elseif known then
  show() -- refused or not: the exchange is stored
  return finish({KNOWN})
end

local refusal = not there and absent(n)
if refusal then
  return refusal
elseif not there and gone(ARGV[8], ARGV[9]) then
  return {GONE}
end

refusal = has_id and write_id()
refusal = refusal or add(n, ARGV[7], unpack(ARGV, 14))
if refusal then
  if has_id then
    remove_id()
  end
  return refusal
end
on_entry(0)
if has_id then
  prune()
end
return finish(result())
