-- Reads the exchange of an ID.
--
-- KEYS  1 the log   2 the IDs
-- ARGV  1 field of the ID   2 the ID
-- Reply {0}: not known; {1, {the entry as of XRANGE, if the log has it}}; {the outcome of a closed ID}
local known, refusal, outcome = known_of(redis.call('HGET', KEYS[2], ARGV[1]), clock())
if refusal then
  return refusal
elseif outcome ~= 1 then
  return {outcome, {}}
end
local token, n = tonumber(string.sub(known, DIGEST + 1, DIGEST + TOKEN)), tonumber(string.sub(known, DIGEST + TOKEN + 1))
local place = string.format('%.0f-%.0f', token, n)
-- Replaced content stands at a sub-place. ⚑ One entry at a time: others may be large.
local from, entry = place .. '000000', nil
repeat
  entry = redis.call('XRANGE', KEYS[1], from, place .. '999999', 'COUNT', 1)[1]
  local words = entry and entry[2]
  local last = entry and (words[#words - 1] == 'pin' and #words - 2 or #words)
  while entry and words[last - 1] == 'id' and words[last] ~= ARGV[2] do
    last = last - 2
  end
  from = entry and '(' .. entry[1]
until not entry or words[last - 1] == 'id'
return {1, {entry}}
