-- The session under a token: its mark, its log, and what its calls have in common. The table of states is in
-- docs/design/sessions.md. granted.lua of redislock stands before.

-- What open has found. The place of the mark is mark_token-mark_seq.
local mark_place, mark_token, mark_seq, state, cleared, deleted, stopped, revision, pins, has_log
local pinned, pin_count = {}, 0

-- is_between reports whether a token lies between a lower one and that of the call. It is false if there is
-- no token, or if the lower one is 0.
local function is_between(lower, other)
  lower, other = tonumber(lower), tonumber(other)
  return lower > 0 and other and other > lower and other < tonumber(token)
end

-- open reads the mark: the version of this form, its place, the state of the session, the operation of the
-- last Clear, the token of the last Delete, behind a slash that of the last stop, the revision, and the
-- places of the pinned exchanges, each with a comma behind it. It returns nothing, or the refusal of the
-- token.
-- ⚑ With a mark that it cannot read, a call would end the session: a Clear removes the log that refuses
-- others.
local function open()
  local refusal, mark = try('GET', mark_key)
  if refusal then
    return refusal
  end
  mark_token, mark_seq, state, cleared, deleted, stopped, revision, pins = string.match(mark or '',
    '^1:(%d+)%-(%d+):([el]):(%x*):(%d*)/?(%d*):(%d+):([%d,%-]*)$')
  if mark and not mark_token then
    return redis.error_reply(string.find(mark, '^%d+:%d+%-%d+:') and 'NEWER the mark of the session has another form'
      or 'WRONGTYPE the key that ends in "mark" is not the mark of a session')
  end
  mark_place = mark_token and mark_token .. '-' .. mark_seq
  revision = tonumber(revision or 0)
  has_log = redis.call('EXISTS', log) == 1
  pins = has_log and pins or '' -- ⚑ the mark outlives a log that has expired
  for place in string.gmatch(pins, '[^,]+') do
    pinned[place], pin_count = true, pin_count + 1
  end
  -- ⚑ A write without an effect: a read-only replica fails here. A replica may lag behind. It must not report
  -- a session as gone or a lock as lost. A server without memory fails here, too, unless the script frees
  -- memory: the later writes of a script are not checked.
  if frees then
    refusal = try('XDEL', log, '0-0')
  elseif not has_log then
    refusal = try('XADD', log, 'NOMKSTREAM', '*', 'm', '')
  end
  if refusal then
    return refusal
  end
  stopped = tonumber(stopped or '') or 0
  local awaited, since = string.match(ARGV[3], '(%d+):(%d+)')
  since = tonumber(since)
  if since > 0 and since < stopped then -- ⚑ before all else: the lease is to close its message
    return {ENDED}
  elseif is_between(accepted, mark_token) then
    return {STALE, mark_place}
  elseif is_between(awaited, deleted) then
    return {DELETED}
  end
end

local function set_mark(place, state, op)
  local life = state ~= 'l' and empty_life or idle > 0 and idle + empty_life
  local stop = stopped > 0 and string.format('/%.0f', stopped) or ''
  local text = string.format('1:%s:%s:%s:%s%s:%.0f:%s', place, state, op, deleted or '', stop, revision, pins)
  if life then
    run('SET', mark_key, text, 'PX', life)
  else
    run('SET', mark_key, text)
  end
end

-- refusal_without_log checks the place token-n of a session without a log. It returns nothing, or the
-- refusal.
local function refusal_without_log(n)
  if mark_token and tonumber(mark_token) > tonumber(token) then
    return {STALE, mark_place}
  elseif mark_token == token and tonumber(mark_seq) >= tonumber(n) then
    return {TAKEN}
  elseif is_beside_lock and not is_granted(lock_key, tonumber(token)) then
    return {UNOWNED}
  elseif not mark_token and redis.call('TIME')[1] * 1000 - token / 1000 > empty_life - 3600000 then
    return {UNOWNED} -- see storedriver.OldToken
  end
end

-- gone reports whether the exchanges that the lease has read or stored, up to a place, have disappeared,
-- and no Clear or Delete says why. The session has no log.
local function gone(up_to, up_to_seq)
  local mark = tonumber(mark_token or 0)
  up_to = tonumber(up_to)
  if up_to == 0 then
    return mark_token == token and state == 'l'
  end
  local emptied = state == 'e' and (cleared ~= '' or deleted == mark_token)
  return not emptied or mark < up_to or mark == up_to and tonumber(mark_seq) <= tonumber(up_to_seq)
end

-- add adds an entry at token-n. It returns nothing, or the refusal of the Stream. An earlier copy
-- of the call, known by its op, is no refusal.
local function add(n, op, ...)
  local place = token .. '-' .. n
  local refusal = try('XADD', log, place, ...)
  if not refusal then
    written = true
    return nil
  elseif not string.find(refusal.err, 'equal or smaller', 1, true) then
    return refusal
  end
  local no_range, at_place = try('XRANGE', log, place, place)
  local no_info, info = try('XINFO', 'STREAM', log)
  if no_range or no_info then
    return no_range or no_info
  elseif at_place[1] and at_place[1][2][2] == op then
    return nil
  end
  local last
  for i = 1, #info, 2 do
    last = info[i] == 'last-generated-id' and info[i + 1] or last
  end
  return string.match(last, '^%d+') == token and {TAKEN} or {STALE, last}
end

-- is_marker compares all fields of a marker: entries of other programs stay.
local function is_marker(entry)
  local fields = entry[2]
  return #fields == 2 and (fields[1] == 'mark' and fields[2] == '' or fields[1] == 'swap' and #fields[2] == 32)
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
  local over = max_exchanges > 0 and (run('XLEN', log) or 0) - markers - pin_count - max_exchanges or 0
  local since = max_age > 0 and token - max_age or 0
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

-- after_entry is called when the log has an entry of the token. At the first access of the token it
-- moves the mark, removes the marker before it, and trims. markers is how many markers the token
-- has. ⚑ It never lowers the mark: the call may be a late copy, known by its op.
local function after_entry(markers)
  if not has_log then
    local same_token = mark_token == token
    set_mark(same_token and mark_place or token .. '-0', 'l', same_token and cleared or '')
  elseif not mark_token or tonumber(mark_token) < tonumber(token) then
    local old = mark_place and (run('XRANGE', log, mark_place, mark_place) or {})[1]
    if old and is_marker(old) then
      run('XDEL', log, mark_place)
    end
    set_mark(token .. '-0', 'l', '')
    if idle == 0 then
      run('PERSIST', log)
    end
    trim(markers)
  end
  if idle > 0 then
    run('PEXPIRE', log, idle)
  end
end

-- raise_mark makes the session refuse lower tokens from now on. It returns nothing, or the refusal.
local function raise_mark()
  local refusal
  if has_log then
    refusal = add('0', nil, 'mark', '')
  else
    refusal = refusal_without_log('0')
  end
  local taken = refusal and refusal[1] == TAKEN
  if refusal and not taken then
    return refusal
  elseif has_log then
    after_entry(taken and 0 or 1)
  elseif taken then
    run('PEXPIRE', mark_key, empty_life) -- nothing else: a late Load must not hide a Clear
  else
    set_mark(token .. '-0', 'e', '')
  end
end
