-- The index of a namespace: the sessions that may have an item, by the time of their last Put in µs.

-- enlist puts a session at the end of the index. It returns nothing, or the refusal.
-- ⚑ No two scores are equal: a score names one Put. Each call removes 4 old sessions at most.
local function enlist(index, session)
  local time, AGE = redis.call('TIME'), 25 * 3600000
  local at, newest = time[1] * 1000000 + time[2], redis.call('ZRANGE', index, 0, 0, 'REV', 'WITHSCORES')[2]
  local refusal = try('ZADD', index, string.format('%.0f', math.max(at, (newest or 0) + 1)), session)
  if refusal then
    return refusal
  end
  refusal = try('PEXPIRE', index, AGE)
  if refusal and not newest then
    try('UNLINK', index)
  end
  local before = string.format('%.0f', at - AGE * 1000)
  local old = redis.call('ZRANGE', index, '-inf', before, 'BYSCORE', 'LIMIT', 0, 4, 'WITHSCORES')
  if not refusal and #old > 0 then
    run('ZREMRANGEBYSCORE', index, '-inf', old[#old])
  end
  return refusal
end
