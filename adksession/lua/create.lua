-- create. Its op is ARGV[4]. From ARGV[5] on: scopes, keys and values.
-- Reply as that of get, or {EXISTS, 0}.
if last then return refusal() or {EXISTS, 0} end
-- ⚑ A header without an op is from a create that failed: its state must not become that of this session.
-- Only a key that is there is removed: Redis checks its memory at the first write of a script, and a
-- removal passes that check.
for _, key in ipairs({SESSION, RECORDS}) do
  if redis.call('EXISTS', key) == 1 then run('UNLINK', key) end
end
put(5)
if failed then return result() end
run('ZADD', INDEX, 0, member)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', EXPIRIES, '-inf', '(' .. digits(math.floor(now / 1000)), 'LIMIT', 0, 4)) do
  if old ~= member then run('ZREM', INDEX, old) end
  run('ZREM', EXPIRIES, old)
end
if failed then return result() end
keep('n', '0', 'o', ARGV[4], 'u', digits(now))
if failed then return result() end
last, updated = ARGV[4], now
return whole({})
