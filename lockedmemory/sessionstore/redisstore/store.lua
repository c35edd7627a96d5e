-- What the scripts of the store have in common; it is put before them, after beside.lua of redislock.
--
-- A session is a stream, the log. An entry is {op, in, out, and id if the caller gave a turn ID}. Two other kinds of
-- entries are marks: {mark} at <fence>-0 says that the holder of a token has been here, {clear} that all before it was cleared. The
-- log never ends without the highest place it has seen: Redis itself then refuses what is lower. A mark goes when
-- something follows it.
--
-- The guard is what a log that is not there is judged by: the session's lock, if it is on this Redis, or else a key
-- that keeps the highest token for longer than the log lasts.
local DONE, KNOWN, CONFLICT, TAKEN, STALE, UNOWNED = 0, 1, 2, 3, 4, 5

local function is_mark(entry) return entry[2][1] == 'mark' or entry[2][1] == 'clear' end

-- last_of is the last entry of the log, or nil.
local function last_of(log) return redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1] end

-- op_of is the operation that wrote an entry.
local function op_of(entry)
  return (entry[2][1] == 'op' or entry[2][1] == 'clear') and entry[2][2]
end

-- admits judges a token for a log that is not there: it returns nothing, or the refusal.
local function admits(guard, is_lock, fence)
  if is_lock == '1' then
    return not is_granted(guard, tonumber(fence)) and {UNOWNED} or nil
  end
  local mark = redis.call('GET', guard)
  return mark and tonumber(mark) > tonumber(fence) and {STALE, mark .. '-0'} or nil
end

-- refused says why the log did not take an entry at fence-n.
local function refused(log, fence, n, op)
  local own = redis.call('XRANGE', log, fence .. '-' .. n, fence .. '-' .. n)[1]
  if own and op and op_of(own) == op then
    return {DONE} -- an earlier copy of this call
  end
  local last = last_of(log)
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

-- add puts an entry into the log. It returns nothing, or the refusal.
local function add(log, guard, is_lock, max, fence, n, op, fields)
  local words = {log, 'NOMKSTREAM'}
  if max ~= '0' then
    words[3], words[4], words[5] = 'MAXLEN', '~', max
  end
  words[#words + 1] = fence .. '-' .. n
  for i = 1, #fields do
    words[#words + 1] = fields[i]
  end
  local reply = redis.pcall('XADD', unpack(words))
  if not reply then
    local refusal = admits(guard, is_lock, fence)
    if refusal then
      return refusal
    end
    table.remove(words, 2)
    redis.call('XADD', unpack(words))
  elseif type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'equal or smaller', 1, true) then
      return reply
    end
    return refused(log, fence, n, op)
  end
end

-- tidy removes the marks that something follows; before is what was last when it came.
local function tidy(log, before)
  if not before then
    return
  end
  if is_mark(before) then
    redis.call('XDEL', log, before[1])
  elseif not string.find(before[1], '-0', 1, true) then
    redis.call('XDEL', log, string.match(before[1], '^%d+') .. '-0')
  end
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  if oldest and is_mark(oldest) and last_of(log)[1] ~= oldest[1] then
    redis.call('XDEL', log, oldest[1])
  end
end

-- used notes that the session was used under a token.
local function used(log, guard, is_lock, fence, idle, keep)
  if idle ~= '0' then
    redis.call('PEXPIRE', log, idle)
  end
  if is_lock ~= '1' then
    redis.call('SET', guard, fence, 'PX', keep)
  end
end

-- show leaves a mark, so that lower tokens are refused from now on. It returns nothing, or the refusal.
local function show(log, guard, is_lock, fence, idle, keep)
  local last = last_of(log)
  if last then
    local ms = string.match(last[1], '^%d+')
    if ms == fence then
      return
    elseif tonumber(ms) > tonumber(fence) then
      return {STALE, last[1]}
    end
  end
  local refusal = add(log, guard, is_lock, '0', fence, '0', nil, {'mark', ''})
  if refusal then
    return refusal
  end
  tidy(log, last)
  used(log, guard, is_lock, fence, idle, keep)
end
