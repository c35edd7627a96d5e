-- A step of a Replace: begins a staging, copies a part of the log to the staging key, or adds content.
--
-- KEYS, ARGV, Reply: see session.lua.
-- KEYS  5 the staging key
-- ARGV  6 identity of the staging
--       7 'begin'   8, 9 first and last place of the range   10 seq   11 op
--       7 'copy'    8 last place staged   9 place in the log before the part   10 its end: '+' or '(place'
--       7 'add'     8 last place staged   9… for each entry: place, number of words, words
-- Reply to begin   {DONE, revision}; {DONE}: the Replace has taken effect before; {RANGE}
--       to others  {DONE, last place staged, last place of the log seen, 1 if it has more, highest new
--                  sub-place or 0}; {FULL}; {AGAIN}: stage from the beginning
local stage, nonce, step = KEYS[5], ARGV[6], ARGV[7]
local last, size, sub = ARGV[8], 0, 0

local function has(place)
  local entry = redis.call('XRANGE', log, place, place)[1]
  return entry and not is_marker(entry)
end

-- ⚑ Only this step makes the key, under a token that is not stale. The log that it found is copied later:
-- a Clear, Replace or Delete in between removes the key.
local function begin()
  local refusal = foreign and absent('0') or judged(ARGV[10], ARGV[11]) or there and show()
  if refusal then
    return refusal
  elseif failed then
    return done()
  elseif not there or not has(ARGV[8]) or not has(ARGV[9]) then
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
  return refusal or {DONE, string.format('%.0f', revision)}
end

-- put adds an entry of some words, and counts its bytes. A short word takes Redis as long as 32 bytes.
local function put(place, words, first, final)
  last = place
  for i = first, final do
    size = size + #words[i] + 32
  end
  return refused('XADD', stage, place, unpack(words, first, final))
end

-- copy stops at 50 entries or 64 KB: Redis serves other clients between steps. An entry that the
-- new content has overtaken gets the next sub-place.
local function copy()
  local place = ARGV[9]
  for _ = 1, 50 do
    local entry = redis.call('XRANGE', log, '(' .. place, ARGV[10], 'COUNT', 1)[1]
    if not entry then
      return {DONE, last, place, 0, sub}
    end
    place = entry[1]
    if not is_marker(entry) then
      local at = place
      if not rises(at, last) then
        local token, seq = parts(last)
        if (seq + 1) % SUBS == 0 then
          return {FULL}
        end
        at, sub = string.format('%.0f-%.0f', token, seq + 1), (seq + 1) % SUBS
      end
      local refusal = put(at, entry[2], 1, #entry[2])
      if refusal then
        return refusal
      end
    end
    if size >= 65536 then
      break
    end
  end
  return {DONE, last, place, 1, sub}
end

local function add_new()
  local at = 9
  while at <= #ARGV do
    local words = tonumber(ARGV[at + 1])
    local refusal = put(ARGV[at], ARGV, at + 2, at + 1 + words)
    if refusal then
      return refusal
    end
    at = at + 2 + words
  end
  local _, seq = parts(last)
  return {DONE, last, '', 0, seq % SUBS}
end

if step == 'begin' then
  return begin()
elseif not is_staged(nonce, last) then
  return {AGAIN}
end
local refusal = refused('PEXPIRE', stage, STAGED)
return refusal or (step == 'copy' and copy() or add_new())
