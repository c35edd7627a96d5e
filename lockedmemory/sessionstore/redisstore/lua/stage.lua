-- A step of a Replace: begins a staging, copies a part of the log to the staging key, or adds content.
--
-- KEYS, ARGV, Reply: see session.lua.
-- KEYS  5 the staging key
-- ARGV  6 identity of the staging
--       7 'begin'   8, 9 first and last place of the range, or 0-0 for a Fork   10 seq   11 op
--                   12, 13 token and seq of storedriver.Access.HistoryUpTo
--       7 'copy'    8 last place staged   9 place in the log before the part   10 its end: '+' or '(place'
--       7 'add'     8 last place staged   9… for each entry: place, number of words, words
-- Reply to begin   {DONE, revision}; {DONE}: the Replace has taken effect before; {RANGE}; {GONE}
--       to others  {DONE, last place staged, last place of the log seen or number of entries added, 1 if
--                  the log has more, highest new sub-place or 0, places of the pinned exchanges of the
--                  step}; {FULL}; {AGAIN}: stage from the beginning
local stage, nonce, step = KEYS[5], ARGV[6], ARGV[7]
local last, sub, staged_pins = ARGV[8], 0, ''
local ENTRIES, BYTES = 50, 65536 -- of a step

local function has(place)
  local entry = redis.call('XRANGE', log, place, place)[1]
  return entry and not is_marker(entry)
end

-- ⚑ Only this step makes the key, under a token that is not stale. The log that it found is copied later:
-- a Clear, Replace or Delete in between removes the key.
local function begin()
  local refusal = judged(ARGV[10], ARGV[11]) or there and show()
  if refusal then
    return refusal
  elseif failed then
    return result()
  elseif ARGV[8] ~= '0-0' and not there and gone(ARGV[12], ARGV[13]) then
    return {GONE}
  elseif ARGV[8] == '0-0' and there or ARGV[8] ~= '0-0' and not (there and has(ARGV[8]) and has(ARGV[9])) then
    return {RANGE}
  end
  refusal = refused('UNLINK', stage) or refused('XADD', stage, HEADER, 'stage', nonce)
  if refusal then
    return refusal
  end
  refusal = refused('PEXPIRE', stage, STAGED)
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
  return refused('XADD', stage, place, unpack(words, first, final))
end

-- copy stops at 50 entries or 64 KB: Redis serves other clients between steps. A short word takes Redis as
-- long as 32 bytes. An entry that the new content has overtaken gets the next sub-place.
-- ⚑ It reads at most 4 entries at once, and one where 4 would not fit by the average size so far.
local function copy()
  local place, size, behind, read, at = ARGV[9], 0, true, {}, 0
  for n = 1, ENTRIES do
    at = at + 1
    if at > #read then
      local some = size > 0 and size / (n - 1) * 4 < BYTES - size and math.min(4, ENTRIES + 1 - n) or 1
      read, at = redis.call('XRANGE', log, '(' .. place, ARGV[10], 'COUNT', some), 1
    end
    local entry = read[at]
    if not entry then
      return {DONE, last, place, 0, sub, staged_pins}
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
        local token, seq = parts(last)
        if (seq + 1) % SUBS == 0 then
          return {FULL}
        end
        to, sub = string.format('%.0f-%.0f', token, seq + 1), (seq + 1) % SUBS
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
  return {DONE, last, place, 1, sub, staged_pins}
end

local function add_new()
  local at, n = 9, 0
  while at <= #ARGV do
    local words = tonumber(ARGV[at + 1])
    local refusal = put(ARGV[at], ARGV, at + 2, at + 1 + words)
    if refusal then
      return refusal
    end
    at, n = at + 2 + words, n + 1
  end
  local _, seq = parts(last)
  return {DONE, last, tostring(n), 0, seq % SUBS, staged_pins}
end

if step == 'begin' then
  return begin()
elseif not is_staged(nonce, last) then
  return {AGAIN}
end
-- ⚑ The life is renewed last: the first write needs memory, so a server without memory refuses the step.
local reply = step == 'copy' and copy() or add_new()
return refused('PEXPIRE', stage, STAGED) or reply
