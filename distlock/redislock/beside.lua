-- For the scripts of a store that keeps its data beside the lock; it is put before them. See beside.go.

-- token_instantly is a fencing token, as text, for what the rest of the script does under the lock without taking it, or nil if
-- somebody has the lock or stands in line, or if another key, which may be '', exists. It is above that of every
-- grant before. Where that is ahead of the clock, the counter learns of it; otherwise the time that goes by does.
local function token_instantly(lock, fence, line, void)
  if redis.call('EXISTS', lock, line, void) > 0 then
    return nil
  end
  local counter = redis.pcall('GET', fence)
  local time = redis.call('TIME')
  if not counter then
    return time[1] .. string.format('%06d', time[2])
  end
  if type(counter) ~= 'string' then -- of another type: acquire finds the words
    return nil
  end
  local s, us, ahead, rest = string.match(counter, '^(%d+):(%d+):(%d+)(:.*)$')
  if not s then
    return nil
  end
  local block = 20000 -- driver.FenceBlock, µs
  local now, since = time[1] * 1000000 + time[2], s * 1000000 + us
  local last = since + math.max(tonumber(ahead), block)
  if now > last then
    return string.format('%.0f', now)
  end
  if last >= 9007199254740991 then -- driver.MaxFence
    return nil
  end
  redis.call('SET', fence, s .. ':' .. us .. ':' .. string.format('%.0f', last + 1 - since) .. rest, 'KEEPTTL')
  return string.format('%.0f', last + 1)
end

-- is_granted reports whether a fencing token, a number, is one of those that were reserved for who has the lock.
local function is_granted(lock, token)
  local s, us, ahead = string.match(redis.call('GET', lock) or '', '^b1:%w+:(%d+):(%d+):(%d+):')
  if not s then
    return false
  end
  local since = s * 1000000 + us
  return since + ahead <= token and token <= since + math.max(tonumber(ahead), 20000) -- driver.FenceBlock
end
