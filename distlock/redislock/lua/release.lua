-- Ends the grant of an owner, and hands the lock off to the first waiter. The usual case is in
-- unflagged.lua, and release_any.lua has all cases. Takes release_lock. Gives raw.
--
-- KEYS  see queue.lua; while the slot moves the lock alone: then without a handoff
-- ARGV  1 owner
--       and, to cancel, 2 for how many ms to leave a tombstone, or 0   3 '1' to leave the queue, too
--       and, to break a grant, 4 its shown token; 1 is not used
-- Reply 'released'  the grant is ended, by this call or by an earlier copy of it
--       'not held'  this owner does not hold the lock
--       the error FOREIGN: the key holds no record, and stays as it is
--
-- May be repeated until two other owners were granted the lock: then a copy is answered 'not held'.
-- Every copy hands a free lock off to the first waiter, and sets the flag anew.
local raw
if ARGV[2] then
  raw = redis.call('GETEX', KEYS[1]) -- ⚑ as in unflagged.lua
else
  local answer
  answer, raw = release_lock(KEYS[1], ARGV[1])
  if answer then
    return answer
  end
end
