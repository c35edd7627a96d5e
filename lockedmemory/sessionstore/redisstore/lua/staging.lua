-- The staging key of a Replace or Fork: the log as it will be. session.lua stands before.
--
-- Its first entry is the header {stage: identity}. ⚑ Each step names the identity and the last place
-- staged. So a late copy of a step changes nothing, and no step continues another staging.
local HEADER, STAGED, SUBS, AGAIN = '0-1', 60000, 1000000, 20

local function parts(place)
  local place_token, place_seq = string.match(place, '^(%d+)%-(%d+)$')
  return tonumber(place_token), tonumber(place_seq)
end

-- rises reports whether place is above other.
local function rises(place, other)
  local place_token, place_seq = parts(place)
  local other_token, other_seq = parts(other)
  return place_token > other_token or place_token == other_token and place_seq > other_seq
end

local function place_of_last(stream)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return last and last[1]
end

-- judged returns the reply for a call at a place that has taken effect before, or that is refused. For any
-- other call it returns nothing.
local function judged(n, op)
  if not has_log then
    return mark_token == token and cleared == op and {DONE} or refusal_without_log(n)
  end
  local place = token .. '-' .. n
  local at_place, last = redis.call('XRANGE', log, place, place)[1], place_of_last(log)
  if at_place and at_place[2][1] == 'swap' and at_place[2][2] == op then
    return {DONE}
  elseif last and not rises(place, last) then
    return string.match(last, '^%d+') == token and {TAKEN} or {STALE, last}
  end
end

-- is_staged reports whether the staging key is that of an identity, and ends at a place.
local function is_staged(staging, last)
  local header = redis.call('XRANGE', stage, HEADER, HEADER)[1]
  return header and header[2][2] == staging and place_of_last(stage) == last
end
