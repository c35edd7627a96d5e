-- The arguments that the scripts of a session share, and their outcomes. It is the first part of each. The
-- other parts define functions alone.
--
-- KEYS  1 the log   2 the mark   3 the session's lock, or the mark again   4 the IDs
--       5 the staging key, of a Clear, Replace or Fork; the others are with their script
-- ARGV  1 token   2 AcceptedFence of storedriver.Access   3 its <Awaited>:<Since>
--       4 '1' if the script frees memory   5 '1' if the lock is on this Redis
--       6 the owner for which the script also releases the lock, or ''
--       7 IdleTTL in ms, or 0   8 life of a session without an exchange in ms
--       9 MaxExchanges   10 MaxAge in µs; 0: no limit
-- Reply {DONE}; {STALE, the highest place}; {another outcome of storedriver.Outcome};
--       {DONE or KNOWN, 'released'} if the lock is released, too; an error, see calls.lua
--
-- Every script may be repeated.
local DONE, KNOWN, CONFLICT, TAKEN, STALE, UNOWNED, GONE, RANGE, FULL, DELETED, NOT_EMPTY,
  STOPPED, SUPERSEDED, ENDED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
local log, mark_key, lock_key, ids, stage = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, accepted = ARGV[1], ARGV[2]
local frees, is_beside_lock, owner = ARGV[4] == '1', ARGV[5] == '1', ARGV[6]
local idle, empty_life = tonumber(ARGV[7]), tonumber(ARGV[8])
local max_exchanges, max_age = tonumber(ARGV[9]), tonumber(ARGV[10])
