-- Appends an exchange. Most calls inside a turn end in this part. So it stands before session.lua, whose
-- functions cost a fifth of such a call. append.lua is the rest.
--
-- KEYS, ARGV, Reply: see access.lua.
-- ARGV  11 seq   12 op   13, 14 token and seq of storedriver.Access.HistoryUpTo
--       15 field of the ID, or ''   16 digest and place of its record   17 RememberIDs in ms
--       18 '1' for the first access of the lease   19… the entry
local n, op, up_to, up_to_seq = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local id, record, remember, is_first, ENTRY = ARGV[15], ARGV[16], tonumber(ARGV[17]), ARGV[18] == '1', 19
local has_id, now, before, known, refusal, outcome = id ~= '', nil, nil, nil, nil, nil

if has_id then
  now = clock()
  before = redis.call('HGET', ids, id)
  known, refusal, outcome = known_of(before, now)
  if refusal then
    return refusal
  elseif outcome == DONE then
    before, known = known and before, nil -- that the message has arrived
  end
end

-- After the first access of its lease, a SaveOnce needs neither mark nor state: the Stream refuses its
-- place. Most calls inside a turn end here, but not one that also releases the lock.
if has_id and not known and not is_first and owner == '' then
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
  remove_id(id, before)
  if refusal then
    return refusal
  end
end
