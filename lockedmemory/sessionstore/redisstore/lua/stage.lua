-- A step of a Replace or Fork: begins a staging, copies a part of the log to it, or adds content.
--
-- KEYS, ARGV, Reply: see access.lua.
-- ARGV  11 identity of the staging
--       12 'begin'   13, 14 first and last place of the range, or 0-0 for a Fork   15 seq   16 op
--                    17, 18 token and seq of storedriver.Access.HistoryUpTo
--       12 'copy'    13 last place staged   14 place in the log before the part   15 its end: '+' or '(place'
--       12 'add'     13 last place staged   14… for each entry: place, number of words, words
-- Reply to begin   {DONE, revision}; {DONE}: the call has taken effect before
--       to others  {DONE, last place staged, last place of the log seen or '', number of entries added, 1 if
--                  the log has more, highest new sub-place or 0, places of the pinned exchanges of the
--                  step}; {AGAIN}: stage from the beginning
local staging, step, last = ARGV[11], ARGV[12], ARGV[13]
local sub, staged_pins = 0, ''
local ENTRIES, BYTES = 50, 65536 -- of a step

local function has(place)
  local entry = redis.call('XRANGE', log, place, place)[1]
  return entry and not is_marker(entry)
end

-- ⚑ Only this step makes the key, under a token that is not stale. The log that it found is copied later:
-- a Clear, Replace or Delete in between removes the key.
local function begin(first, final, n, op, up_to, up_to_seq)
  local forks = first == '0-0'
  local refusal = judged(n, op) or has_log and raise_mark()
  if refusal then
    return refusal
  elseif failed then
    return result()
  elseif forks and has_log then
    return {NOT_EMPTY}
  elseif not forks and not has_log and gone(up_to, up_to_seq) then
    return {GONE}
  elseif not forks and not (has_log and has(first) and has(final)) then
    return {RANGE}
  end
  refusal = try('UNLINK', stage) or try('XADD', stage, HEADER, 'stage', staging)
  if refusal then
    return refusal
  end
  refusal = try('PEXPIRE', stage, STAGED)
  if refusal then
    try('UNLINK', stage)
  end
  return refusal or {DONE, revision}
end

-- put adds an entry of some words.
local function put(place, words, first, final)
  last = place
  if words[first] == 'op' and words[final - 1] == 'pin' then
    staged_pins = staged_pins .. place .. ','
  end
  return try('XADD', stage, place, unpack(words, first, final))
end

-- copy stops at 50 entries or 64 KB: Redis serves other clients between steps. A short word takes Redis as
-- long as 32 bytes. An entry that the new content has overtaken gets the next sub-place.
-- ⚑ It reads at most 4 entries at once, and one where 4 would not fit by the average size so far.
local function copy(place, bound)
  local size, behind, read, at = 0, true, {}, 0
  for n = 1, ENTRIES do
    at = at + 1
    if at > #read then
      local some = size > 0 and size / (n - 1) * 4 < BYTES - size and math.min(4, ENTRIES + 1 - n) or 1
      read, at = redis.call('XRANGE', log, '(' .. place, bound, 'COUNT', some), 1
    end
    local entry = read[at]
    if not entry then
      return {DONE, last, place, 0, 0, sub, staged_pins}
    end
    place = entry[1]
    local words = entry[2]
    if not is_marker(entry) then
      for i = 1, #words do
        size = size + #words[i] + 32
      end
      local to = place
      behind = behind and not rises(place, last)
      if behind then
        local last_token, last_seq = parts(last)
        if (last_seq + 1) % SUBS == 0 then
          return {FULL}
        end
        to, sub = string.format('%.0f-%.0f', last_token, last_seq + 1), (last_seq + 1) % SUBS
      end
      local refusal = put(to, words, 1, #words)
      if refusal then
        return refusal
      end
    end
    if size >= BYTES then
      break
    end
  end
  return {DONE, last, place, 0, 1, sub, staged_pins}
end

-- add_new adds the entries whose words begin at an argument.
local function add_new(at)
  local n = 0
  while at <= #ARGV do
    local words = tonumber(ARGV[at + 1])
    local refusal = put(ARGV[at], ARGV, at + 2, at + 1 + words)
    if refusal then
      return refusal
    end
    at, n = at + 2 + words, n + 1
  end
  local _, last_seq = parts(last)
  return {DONE, last, '', n, 0, last_seq % SUBS, staged_pins}
end

local refusal = open()
if refusal then
  return refusal
elseif step == 'begin' then
  return begin(unpack(ARGV, 13, 18))
elseif not is_staged(staging, last) then
  return {AGAIN}
end
-- ⚑ The life is renewed last: the first write needs memory, so a server without memory refuses the step.
local reply = step == 'copy' and copy(ARGV[14], ARGV[15]) or add_new(14)
return try('PEXPIRE', stage, STAGED) or reply
