-- Shows a session the token of a reader.
--
-- KEYS, ARGV, Reply: see session.lua.
return show() or result()
