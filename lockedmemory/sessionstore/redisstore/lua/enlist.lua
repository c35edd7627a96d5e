-- Puts a session into the index.
--
-- KEYS  1 the index
-- ARGV  1 the session
-- Reply 1; an error, see calls.lua
return enlist(KEYS[1], ARGV[1]) or failed and redis.error_reply(failed) or 1
