-- The staging key of a Replace: the log as it will be. This part stands between session.lua and the
-- scripts that use the key.
--
-- Its first entry is the header {stage: identity}. ⚑ Each step names the identity and the last place
-- staged. So a late copy of a step changes nothing, and no step continues another staging.
local HEADER, STAGED, SUBS, AGAIN = '0-1', 60000, 1000000, 20

-- refused runs a command, and returns its error, or nothing.
local function refused(...)
  local reply = try(...)
  return type(reply) == 'table' and reply.err and reply or nil
end

local function parts(place)
  local token, seq = string.match(place, '^(%d+)%-(%d+)$')
  return tonumber(token), tonumber(seq)
end

-- rises reports whether place is above other.
local function rises(place, other)
  local token, seq = parts(place)
  local other_token, other_seq = parts(other)
  return token > other_token or token == other_token and seq > other_seq
end

local function place_of_last(stream)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return last and last[1]
end

-- judged returns the reply for a call at a place that has taken effect before, or that is refused. For any
-- other call it returns nothing.
local function judged(n, op)
  if not there then
    return token == fence and cleared == op and {DONE} or absent(n)
  end
  local place = fence .. '-' .. n
  local at_place, last = redis.call('XRANGE', log, place, place)[1], place_of_last(log)
  if at_place and at_place[2][1] == 'swap' and at_place[2][2] == op then
    return {DONE}
  elseif last and not rises(place, last) then
    return {string.match(last, '^%d+') == fence and TAKEN or STALE, last}
  end
end

-- is_staged reports whether the staging key is that of an identity, and ends at a place.
local function is_staged(nonce, last)
  local header = redis.call('XRANGE', KEYS[5], HEADER, HEADER)[1]
  return header and header[2][2] == nonce and place_of_last(KEYS[5]) == last
end
