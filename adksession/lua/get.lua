-- get. ARGV[5] is the number of the first record of a later page, and [7] the number after its last one,
-- or 0. [6] is how many of the last records the first page reads. [8] are the bytes that end a page.
-- Reply: see whole.
local from, recent, upto, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local r = refusal()
if r then return r end
if recent + upto > 0 and redis.call('LLEN', RECORDS) < n then
  return redis.error_reply('FOREIGN records of a session are missing')
end
if n < upto then return {MISSING, 0} end
if token > 0 then
  keep()
  if failed then return result() end
end
if upto == 0 then from, upto = math.max(0, n - recent), n end
local records, bytes = {}, 0
while from + #records < upto and bytes < limit do
  local first = from + #records
  for _, record in ipairs(redis.call('LRANGE', RECORDS, first, math.min(first + 15, upto - 1))) do
    records[#records + 1] = record
    bytes = bytes + #record
    if bytes >= limit then break end
  end
end
return whole(records)
