-- Shows a lock. It changes nothing. Its code follows record.lua.
--
-- KEYS  1 the lock
-- Outcomes  'busy', 'free'; the error FOREIGN
local raw = redis.call('GET', lock)
local held, err, _, _, token, last, _, _, left = read(raw)
if held == nil then
  return err
end
return held and busy(raw, token, left) or {'free', last, now}
