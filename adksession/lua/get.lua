-- get. ARGV[4] is how many of the last records to read. Reply: see whole.
local recent = math.min(n, tonumber(ARGV[4]))
local r = refusal()
if r then return r end
if token > 0 then
  keep()
  if failed then return result() end
end
return whole(recent > 0 and redis.call('LRANGE', RECORDS, n - recent, n - 1) or {})
