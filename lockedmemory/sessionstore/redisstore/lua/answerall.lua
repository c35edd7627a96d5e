-- Appends an exchange that answers several messages. records.lua stands before.
--
-- KEYS, ARGV, Reply: see access.lua.
-- KEYS  5 the inbox
-- ARGV  11 RememberIDs in ms   12 seq   13 op   14, 15 token and seq of storedriver.Access.HistoryUpTo
--       16 digest and place of the records   17, 18 numbers of IDs and of superseded ones
--       19… their fields, and then the entry
local inbox, n, op, up_to, up_to_seq, record = KEYS[5], unpack(ARGV, 12, 16)
local last, final = 18 + ARGV[17], 18 + ARGV[17] + ARGV[18]

refusal = open()
local known, decided, before = 0, false, {}
for i = 19, refusal and 0 or last do
  local outcome, found, whole = look(ARGV[i])
  before[i], decided = found and whole, decided or outcome ~= DONE -- of an open ID: that it has arrived
  if outcome == KNOWN and string.sub(found, 1, DIGEST) == string.sub(record, 1, DIGEST) then
    known = known + 1
  end
end
if decided then -- ⚑ a write without an effect, as in append.lua
  refusal = refusal or try('HDEL', ids, '') or known < last - 18 and {CONFLICT}
elseif not has_log then
  refusal = refusal or refusal_without_log(n) or gone(up_to, up_to_seq) and {GONE}
end
if refusal then
  return refusal
elseif decided then
  raise_mark() -- refused or not: the IDs are decided
  return {KNOWN}
end

for i = 19, last do
  refusal = refusal or write_id(ARGV[i], record, now, life)
end
refusal = refusal or add(n, op, unpack(ARGV, final + 1))
if refusal then
  for i = 19, last do
    remove_id(ARGV[i], before[i])
  end
  return refusal
end
after_entry(0)
for i = 19, final do
  if i > last and look(ARGV[i]) == DONE then
    keep(ARGV[i], '>')
  end
  prune(ARGV[i], now)
end
run('HDEL', inbox, unpack(ARGV, 19, final)) -- ⚑ last: the item of an open message stays
return result()
