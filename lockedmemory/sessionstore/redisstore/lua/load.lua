-- Shows a session the token of a reader.
--
-- KEYS, ARGV, Reply: see access.lua.
return open() or raise_mark() or result()
