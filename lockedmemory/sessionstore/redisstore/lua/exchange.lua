-- The arguments of append.lua.
--
-- KEYS, ARGV, Reply: see access.lua.
-- KEYS  5 the inbox
-- ARGV  11 RememberIDs in ms   12 seq   13 op   14, 15 token and seq of storedriver.Access.HistoryUpTo
--       16 digest and place of the records   17 '1' for the first access of the lease
--       18, 19 numbers of IDs and of superseded ones   20… their fields, and then the entry
local remember, n, op, up_to, up_to_seq, record = tonumber(ARGV[11]), unpack(ARGV, 12, 16)
local inbox, is_first, FIRST, last, final = KEYS[5], ARGV[17] == '1', 20, 19 + ARGV[18], 19 + ARGV[18] + ARGV[19]
local refusal, now, before, same, decided = nil, nil, {}, 0, DONE

