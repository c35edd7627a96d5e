-- Appends an exchange. Most calls inside a turn end in this part. So it stands before session.lua, whose
-- functions cost a fifth of such a call. append.lua is the rest. exchange.lua stands before.

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
