-- get. ARGV[5] is the number of the first record, [6] how many of the last records to read, 0 for all from [5] on, and
-- -1 for none, [7] the number after the last one, or 0 on the first page, [8] the bytes that end a page.
-- Reply: see whole. Of a later page, {DONE, 0, born, op, n, {}, records}.
local from, recent, upto, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local r = refusal()
if r then return r end
if recent >= 0 and redis.call('LLEN', RECORDS) < n then
  return redis.error_reply('FOREIGN records of a session are missing')
end
if n < upto then return {MISSING, 0} end
if token > 0 then
  keep()
  if failed then return result() end
end
if recent > 0 then from = math.max(0, n - recent) end
local stop = upto > 0 and upto or n
local records, bytes = {}, 0
while recent >= 0 and from + #records < stop and bytes < limit do
  local first = from + #records
  for _, record in ipairs(redis.call('LRANGE', RECORDS, first, math.min(first + 15, stop - 1))) do
    records[#records + 1] = record
    bytes = bytes + #record
    if bytes >= limit then break end
  end
end
if upto > 0 then return {DONE, 0, born, last, n, {}, records} end
return whole(records)
