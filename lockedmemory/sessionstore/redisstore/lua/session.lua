-- The common part of the scripts of a session. It follows unflagged.lua of redislock. The table
-- of states is in docs/design/sessions.md.
--
-- KEYS  1 the log   2 the mark   3 the session's lock, or the mark again   4 the IDs
-- ARGV  1 token, storedriver.Access.AcceptedFence and WaitFence, and 'true' if the script frees memory,
--       with spaces between
--       2 '1' if the lock is on this Redis, else '0'; or the owner for which the script also releases
--       the lock   3 IdleTTL in ms, or 0
--       4 life of a session without an exchange in ms   5 MaxExchanges, and MaxAge in µs, with a space
--       between; 0: no limit
-- Reply {DONE}; {TAKEN or STALE, the highest place}; {another outcome of storedriver.Outcome};
--       {DONE or KNOWN, 'released'} if the lock is released, too; an error, see reply.lua
--
-- Every script may be repeated.
local KNOWN, CONFLICT, TAKEN, STALE, UNOWNED, GONE, RANGE, FULL, DELETED = 1, 2, 3, 4, 5, 6, 7, 8, 9

-- finish is the reply of the last call of a lease, which has stored its exchange.
-- ⚑ No error of the release changes the reply.
local function finish(reply)
  if #ARGV[2] > 1 and not reply.err then
    local _, answer = pcall(release_lock, KEYS[3], ARGV[2])
    reply[2] = answer == 'released' and answer or nil
  end
  return reply
end

-- The mark: the version of this form, its place, the state of the session, the operation of the last Clear,
-- the token of the last Delete, the revision, and the places of the pinned exchanges, each with a comma
-- behind it.
-- ⚑ With a mark that it cannot read, a call would end the session: a Clear removes the log that refuses others.
local mark = try('GET', KEYS[2])
if type(mark) == 'table' then
  return mark
end
local token, seq, state, cleared, deleted, revision, pins = string.match(mark or '',
  '^1:(%d+)%-(%d+):([el]):(%x*):(%d*):(%d+):([%d,%-]*)$')
if mark and not token then
  return redis.error_reply(string.find(mark, '^%d+:%d+%-%d+:') and 'NEWER the mark of the session has another form'
    or 'WRONGTYPE the key that ends in "mark" is not the mark of a session')
end
revision = tonumber(revision or 0)
local top = token and token .. '-' .. seq
local there = redis.call('EXISTS', log) == 1
pins = there and pins or '' -- ⚑ the mark outlives a log that has expired
-- ⚑ A write without an effect: a read-only replica fails here. A replica may lag behind. It must not report
-- a session as gone or a lock as lost. A server without memory fails here, too, unless the script frees
-- memory: the later writes of a script are not checked.
local writes
if frees == 'true' then
  writes = try('XDEL', log, '0-0')
elseif not there then
  writes = try('XADD', log, 'NOMKSTREAM', '*', 'm', '')
end
if type(writes) == 'table' then
  return writes
end

-- between reports whether a token lies between another one and that of the call. It is false if there is
-- no token, or if the other one is 0.
local function between(other, token)
  return tonumber(other) > 0 and token and tonumber(token) > tonumber(other) and tonumber(token) < tonumber(fence)
end
if between(accepted, token) then
  return {STALE, top}
elseif between(wait_fence, tonumber(deleted)) then
  return {DELETED}
end

local function set_mark(place, state, op)
  local life = state ~= 'l' and ARGV[4] or idle > 0 and idle + ARGV[4]
  local text = string.format('1:%s:%s:%s:%s:%.0f:%s', place, state, op, deleted or '', revision, pins)
  if life then
    run('SET', KEYS[2], text, 'PX', life)
  else
    run('SET', KEYS[2], text)
  end
end

-- absent checks the place fence-n of a session without a log. It returns nothing, or the refusal.
local function absent(n)
  if token and tonumber(token) > tonumber(fence) then
    return {STALE, top}
  elseif token == fence and tonumber(seq) >= tonumber(n) then
    return {TAKEN, top}
  elseif ARGV[2] ~= '0' and not is_granted(KEYS[3], tonumber(fence)) then
    return {UNOWNED}
  elseif not mark and redis.call('TIME')[1] * 1000 - fence / 1000 > ARGV[4] - 3600000 then
    return {UNOWNED} -- see storedriver.OldToken
  end
end

-- gone reports whether the exchanges that the lease has read or stored, up to a place, have disappeared,
-- and no Clear or Delete says why. The session has no log.
local function gone(up_to, up_to_seq)
  local mark = tonumber(token or 0)
  up_to = tonumber(up_to)
  if up_to == 0 then
    return token == fence and state == 'l'
  end
  local emptied = state == 'e' and (cleared ~= '' or deleted == token)
  return not emptied or mark < up_to or mark == up_to and tonumber(seq) <= tonumber(up_to_seq)
end

-- add adds an entry at fence-n. It returns nothing, or the refusal of the Stream. An earlier copy
-- of the call, known by its op, is no refusal.
local function add(n, op, ...)
  local place = fence .. '-' .. n
  local reply = try('XADD', log, place, ...)
  if type(reply) ~= 'table' then
    written = true
    return nil
  elseif not string.find(reply.err, 'equal or smaller', 1, true) then
    return reply
  end
  local at_place, info = try('XRANGE', log, place, place), try('XINFO', 'STREAM', log)
  if at_place.err or info.err then
    return at_place.err and at_place or info
  elseif at_place[1] and at_place[1][2][2] == op then
    return nil
  end
  local last
  for i = 1, #info, 2 do
    last = info[i] == 'last-generated-id' and info[i + 1] or last
  end
  return {string.match(last, '^%d+') == fence and TAKEN or STALE, last}
end

-- is_marker compares all fields of a marker: entries of other programs stay.
local function is_marker(entry)
  local fields = entry[2]
  return #fields == 2 and (fields[1] == 'mark' and fields[2] == '' or fields[1] == 'swap' and #fields[2] == 32)
end

local pinned, pin_count = {}, 0
for place in string.gmatch(pins, '[^,]+') do
  pinned[place], pin_count = true, pin_count + 1
end

-- exchange_from returns the first exchange from a place on that is not pinned, and its token.
local function exchange_from(place)
  local entry
  repeat
    entry = (run('XRANGE', log, place, '+', 'COUNT', 1) or {})[1]
    place = entry and '(' .. entry[1]
  until not entry or not (is_marker(entry) or pinned[entry[1]])
  return entry, entry and string.match(entry[1], '^%d+')
end

-- trim removes the oldest turns until MaxExchanges exchanges and those of MaxAge are left, or 100 exchanges
-- or 1 MiB, and the rest of a turn, are removed. It keeps the newest turn whole, and no part of another one.
-- Pinned exchanges stay.
-- ⚑ It reads one exchange at a time: a reply of many would block Redis for the time of all their bytes.
local function trim(markers)
  if ARGV[5] == '0 0' then
    return
  end
  local most, age = string.match(ARGV[5], '^(%d+) (%d+)$')
  most, age = tonumber(most), tonumber(age)
  local over = most > 0 and (run('XLEN', log) or 0) - markers - pin_count - most or 0
  local since = age > 0 and fence - age or 0
  if over <= 0 and since <= 0 then
    return
  end
  local n, size, last = 0, 0, nil -- last is the token of the last exchange that must go
  local entry, of = exchange_from('-')
  while entry and n < 100 and size < 1048576 and (n < over or tonumber(of) < since) do
    n, last = n + 1, of
    for _, word in ipairs(entry[2]) do
      size = size + #word
    end
    entry, of = exchange_from('(' .. entry[1])
  end
  if last and of == last then
    entry, of = exchange_from(string.format('%.0f', last + 1))
  end
  local bound = of or last
  if last and pin_count == 0 then
    run('XTRIM', log, 'MINID', bound)
  elseif last then
    entry, of = exchange_from('-')
    while entry and tonumber(of) < tonumber(bound) do
      run('XDEL', log, entry[1])
      entry, of = exchange_from('(' .. entry[1])
    end
  end
end

-- on_entry is called when the log has an entry of the token. At the first access of the token it
-- moves the mark, removes the marker before it, and trims. markers is how many markers the token
-- has. ⚑ It never lowers the mark: the call may be a late copy, known by its op.
local function on_entry(markers)
  if not there then
    local same_token = token == fence
    set_mark(same_token and top or fence .. '-0', 'l', same_token and cleared or '')
  elseif not token or tonumber(token) < tonumber(fence) then
    local old = top and (run('XRANGE', log, top, top) or {})[1]
    if old and is_marker(old) then
      run('XDEL', log, top)
    end
    set_mark(fence .. '-0', 'l', '')
    if idle == 0 then
      run('PERSIST', log)
    end
    trim(markers)
  end
  if idle > 0 then
    run('PEXPIRE', log, idle)
  end
end

-- show makes the session refuse lower tokens from now on. It returns nothing, or the refusal.
local function show()
  local refusal
  if there then
    refusal = add('0', nil, 'mark', '')
  else
    refusal = absent('0')
  end
  local taken = refusal and refusal[1] == TAKEN
  if refusal and not taken then
    return refusal
  elseif there then
    on_entry(taken and 0 or 1)
  elseif taken then
    run('PEXPIRE', KEYS[2], ARGV[4]) -- nothing else: a late Load must not hide a Clear
  else
    set_mark(fence .. '-0', 'e', '')
  end
end
