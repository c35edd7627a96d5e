-- What the scripts that work under a lease have in common; it is put before them, after beside.lua of redislock.
--
-- A session is a stream, the log. An entry is {op, in, out, and id if the caller gave a turn ID}. Two other kinds of
-- entries are marks: {mark = ''} at <fence>-0 says that the holder of a token has been here, {clear = op} that all before it was
-- cleared.
-- The log never ends without the highest place it has seen: Redis itself then refuses what is lower. A mark goes when the next
-- holder comes, who knows its place from a key beside the log.
--
-- KEYS  1 the log   2 the place of the last mark, whose token is the highest one that was shown
--       3 the session's lock, if it is on this Redis, else again 2
-- ARGV  1 token   2 '1' if there is a lock   3 for how long the log is kept, in ms, or '0'   4 for how long the last mark's place is, or '0'
local DONE, KNOWN, CONFLICT, TAKEN, STALE, UNOWNED = 0, 1, 2, 3, 4, 5
local log, fence = KEYS[1], ARGV[1]

-- try is redis.pcall. An error names the command, which not every Redis does where a right is missing.
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    return redis.error_reply(reply.err .. " ('" .. string.lower((...)) .. "')")
  end
  return reply
end

-- failed is the error of a command that came after the write of a call.
local failed

-- after calls a command that comes after the write of a call. If it fails, the write stands.
local function after(...)
  local reply = try(...)
  if type(reply) == 'table' and reply.err then
    failed = reply.err
    return nil
  end
  return reply
end

-- done is the reply of a call that has written. An error that begins with WRITTEN is no refusal.
local function done()
  return failed and redis.error_reply('WRITTEN ' .. failed) or {DONE}
end

-- admits judges the token for a log that is not there. It returns nothing, or the refusal. ⚑ The lock does not tell the older of its
-- owner's tokens from the newer ones, which were handed on within a process; the last mark does.
local function admits()
  local place = redis.call('GET', KEYS[2])
  if place and not string.find(place, '^%d+%-%d+$') then
    return redis.error_reply('WRONGTYPE the last mark has no place')
  end
  if place and tonumber(string.match(place, '^%d+')) > tonumber(fence) then
    return {STALE, place}
  end
  return ARGV[2] == '1' and not is_granted(KEYS[3], tonumber(fence)) and {UNOWNED} or nil
end

-- refused says why the log did not take an entry at fence-n. An earlier copy of the call, known by its op, is no refusal.
local function refused(n, op)
  local own = op and redis.call('XRANGE', log, fence .. '-' .. n, fence .. '-' .. n)[1]
  if own and (own[2][1] == 'op' or own[2][1] == 'clear') and own[2][2] == op then
    return {DONE}
  end
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local top = last and last[1] or '0-0'
  local ms, seq = string.match(top, '^(%d+)-(%d+)$')
  if tonumber(ms) < tonumber(fence) or ms == fence and tonumber(seq) < tonumber(n) then
    -- Somebody has removed the last entry by hand.
    local info = redis.call('XINFO', 'STREAM', log)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        top = info[i + 1]
        ms = string.match(top, '^%d+')
      end
    end
  end
  return {ms == fence and TAKEN or STALE, top}
end

-- add puts an entry into the log, of which max are kept. It returns nothing, or the refusal.
local function add(n, op, max, ...)
  local words = {log, 'NOMKSTREAM'}
  if max ~= '0' then
    words[3], words[4], words[5] = 'MAXLEN', '~', max
  end
  words[#words + 1] = fence .. '-' .. n
  for _, word in ipairs({...}) do
    words[#words + 1] = word
  end
  local reply = try('XADD', unpack(words))
  if not reply then
    local refusal = admits()
    if refusal then
      return refusal
    end
    table.remove(words, 2)
    redis.call('XADD', unpack(words))
  elseif type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'equal or smaller', 1, true) then
      return reply
    end
    return refused(n, op)
  end
end

-- remove removes a mark. Marks are known by all they have: what another program has put into the log is left there.
local function remove(place)
  local entry = (after('XRANGE', log, place, place) or {})[1]
  local fields = entry and entry[2] or {}
  if #fields == 2 and (fields[1] == 'mark' and fields[2] == '' or fields[1] == 'clear' and #fields[2] == 32) then
    after('XDEL', log, place)
  end
end

-- shown notes the place of the last mark, there or not, and removes the mark before it. Something stands above that by now.
local function shown(n)
  local place = fence .. '-' .. n
  local before = redis.pcall('GET', KEYS[2])
  if not before or type(before) == 'string' and string.find(before, '^%d+%-%d+$') then -- or else it is another program's
    if ARGV[4] ~= '0' then
      after('SET', KEYS[2], place, 'PX', ARGV[4])
    else
      after('SET', KEYS[2], place)
    end
    if before and before ~= place then
      remove(before)
    end
  end
  if ARGV[3] ~= '0' then
    after('PEXPIRE', log, ARGV[3])
  end
end

-- show leaves a mark, so that lower tokens are refused from now on. It returns nothing, or the refusal.
local function show()
  local refusal = add('0', nil, '0', 'mark', '')
  if not refusal then
    shown('0')
  elseif refusal[1] ~= TAKEN then
    return refusal
  end
end
