-- For the scripts of a store that keeps its data beside the lock; it is put before them. See beside.go.

-- is_granted reports whether a fencing token, a number, is one of those that were reserved for who has the lock.
local function is_granted(lock, token)
  local s, us, ahead = string.match(redis.call('GET', lock) or '', '^b1:%w+:(%d+):(%d+):(%d+):')
  if not s then
    return false
  end
  local since = s * 1000000 + us
  return since + ahead <= token and token <= since + math.max(tonumber(ahead), 20000) -- driver.FenceBlock
end
