-- append. ARGV[4] is the op, [5] the op before it, [6] the record. From ARGV[7] on: scopes, keys and values.
-- Reply {DONE, µs of the append} or {AHEAD, 0}.
local op, before, record = ARGV[4], ARGV[5], ARGV[6]
if op == last then return {DONE, updated} end -- ⚑ first: stored by an earlier copy
local r = refusal()
if r then return r end
if last ~= before then return {AHEAD, 0} end -- ⚑ equal, whatever the number
for _ = n + 1, redis.call('LLEN', RECORDS) do -- of an append that failed
  if not run('RPOP', RECORDS) then return result() end
end
if not run('RPUSH', RECORDS, record) then return result() end
put(7)
if failed then return result() end -- ⚑ no event without its state
keep('n', digits(n + 1), 'o', op, 'u', digits(now))
return failed and result() or {DONE, now}
