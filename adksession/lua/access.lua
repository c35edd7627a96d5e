-- The arguments that all scripts have. The functions of redisconn.CallsLua follow, then session.lua.
--
-- KEYS  the session: its header and its state; its records; the states of the app and of the user;
--       the index of the app: all sessions by name; the expiries of sessions, in ms
-- ARGV  1 token, or 0; 2 IdleTTL in ms, or 0; 3 the name in both indexes;
--       at the end: scopes, keys and values of states, in the order of writes
--
-- Reply {outcome, …}: {STALE, mark}; else as each script says. An error WRITTEN … says that something was
-- written: a record without a step of the header that makes it visible, or a header with the wrong
-- expiry. All scripts may be sent again, except create and delete.
local DONE, MISSING, STALE, AHEAD, EXISTS = 0, 1, 2, 3, 4
local SESSION, RECORDS, APP, USER, INDEX, EXPIRIES = unpack(KEYS)
local token, life, member = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
