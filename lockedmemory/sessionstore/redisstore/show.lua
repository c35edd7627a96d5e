-- Shows the log a token: it refuses lower ones from now on.
--
-- KEYS  1 the log   2 the guard
-- ARGV  1 token   2 '1' if the guard is the lock   3 for how long the log is kept, in ms, or '0'   4 for how long the guard is
-- Reply {DONE}, {STALE, the log's last place}, or {UNOWNED}
--
-- May be repeated.
return show(KEYS[1], KEYS[2], ARGV[2], ARGV[1], ARGV[3], ARGV[4]) or {DONE}
