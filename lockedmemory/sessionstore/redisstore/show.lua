-- Shows the log a token: it refuses lower ones from now on.
--
-- KEYS and ARGV are those of store.lua.
-- Reply {DONE}, {STALE, the log's last place}, or {UNOWNED}
--
-- May be repeated.
return show() or done()
