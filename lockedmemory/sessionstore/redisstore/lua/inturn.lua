-- Appends an exchange. Most calls inside a turn end in this part. So it stands before session.lua, whose
-- functions cost a fifth of such a call. append.lua is the rest.
--
-- KEYS, ARGV, Reply: see access.lua.
-- KEYS  5 the inbox
-- ARGV  11 RememberIDs in ms   12 seq   13 op   14, 15 token and seq of storedriver.Access.HistoryUpTo
--       16 digest and place of the records   17 '1' for the first access of the lease
--       18, 19 numbers of IDs and of superseded ones   20… their fields, and then the entry
local remember, n, op, up_to, up_to_seq, record = tonumber(ARGV[11]), unpack(ARGV, 12, 16)
local inbox, is_first, FIRST, last, final = KEYS[5], ARGV[17] == '1', 20, 19 + ARGV[18], 19 + ARGV[18] + ARGV[19]
local now, before, same, decided = nil, {}, 0, DONE

for i = FIRST, last do
  now = now or clock()
  local found = redis.call('HGET', ids, ARGV[i])
  local known, foreign, outcome = known_of(found, now)
  if foreign then
    return foreign
  elseif outcome ~= DONE then
    decided = outcome
  end
  before[i] = known and found -- of an open ID: that the message has arrived
  if outcome == KNOWN and string.sub(known, 1, DIGEST) == string.sub(record, 1, DIGEST) then
    same = same + 1
  end
end

-- After the first access of its lease, a SaveOnce needs neither mark nor state: the Stream refuses its
-- place. Most calls inside a turn end here, but not one that also releases the lock.
if last == FIRST and final == FIRST and decided == DONE and not is_first and owner == '' then
  local id, _, place = ARGV[FIRST], nil, nil
  local refusal = write_id(id, record, now, remember)
  if not refusal then
    _, place = try('XADD', log, 'NOMKSTREAM', token .. '-' .. n, unpack(ARGV, final + 1))
  end
  if place then
    written = true
    if idle > 0 then
      run('PEXPIRE', log, idle)
    end
    prune(id, now)
    try('HDEL', inbox, id) -- Pending drops an item that stays
    return result()
  end
  remove_id(id, before[FIRST])
  if refusal then
    return refusal
  end
end
