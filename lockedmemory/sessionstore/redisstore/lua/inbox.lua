-- Puts a question into the inbox, or lists the pending ones, and removes the others. records.lua and index.lua
-- stand before.
--
-- The field of an item is that of its ID. Its value has 16 digits of the arrival in µs, 3 digits of the length
-- of the ID, the ID, and the question.
--
-- KEYS, ARGV: see access.lua. Without a lease, the token is 0.
-- KEYS  5 the inbox   6 the index, if the same node of a Cluster has it, of a Put
-- ARGV  11 life of an item in ms
--       of a Put  12 token of the last Delete   13 field of the ID   14 value without the arrival   15 session
--                 16 most items   17 most bytes of IDs and questions
-- Reply {DONE, {{arrival, ID, question}, …}, the time in µs, not before an arrival}; to a Put {outcome}, and
--       without an effect {outcome, <token of the last Delete>-0}; refusals and errors: see access.lua
local inbox, index, named, id, text = KEYS[5], KEYS[6], ARGV[12], ARGV[13], ARGV[14]

refusal = open() or token ~= '0' and raise_mark()
local last_delete = string.match(deleted or '', '%d+') or '0'

-- unchanged is the reply to a Put without an effect. ⚑ A read-only replica fails here.
local function unchanged(outcome)
  return refusal or try('HDEL', inbox, '') or {outcome, last_delete .. '-0'}
end

local outcome = named and (named ~= last_delete and DELETED or look(id)) or DONE
if refusal or outcome ~= DONE then
  return unchanged(outcome)
end

local time, items = redis.call('TIME'), redis.call('HRANDFIELD', inbox, 128, 'WITHVALUES')
local at, newest, size, pending, others, is_pending = time[1] * 1000000 + time[2], 0, 0, {}, {}, false
for i = 1, #items, 2 do
  local field, value = items[i], items[i + 1]
  local arrival, length = string.match(value, '^(' .. string.rep('%d', 16) .. ')(%d%d%d)')
  if not arrival then
    return redis.error_reply('WRONGTYPE the key that ends in "inbox" has an item of another program')
  end
  arrival, length = tonumber(arrival), tonumber(length, 10)
  newest = math.max(newest, arrival)
  if at - arrival < life * 1000 and look(field) == DONE then
    is_pending, size = is_pending or field == id, size + #value - 19
    pending[#pending + 1] = {arrival, string.sub(value, 20, 19 + length), string.sub(value, 20 + length)}
  elseif field ~= id then -- ⚑ that one is written anew
    others[#others + 1] = field
  end
end

if named and not is_pending and #pending > 0 and (#pending >= ARGV[16] - 0 or size + #text - 3 > ARGV[17] - 0) then
  return unchanged(FULL)
elseif named then
  refusal = refusal or index and enlist(index, ARGV[15])
  if refusal or is_pending then
    return unchanged(DONE)
  end
  -- ⚑ The first write to the inbox needs memory: a server without memory refuses the Put.
  refusal = try('HSET', inbox, id, string.format('%016.0f', math.max(at, newest + 1)) .. text)
    or try('PEXPIRE', inbox, life)
  if refusal then
    try('HDEL', inbox, id)
  end
  written = true
end
if #others > 0 and not refusal then
  run('HDEL', inbox, unpack(others))
end
return refusal or (failed or named) and result() or {DONE, pending, math.max(at, newest)}
