-- How a record gets its tokens. It follows record.lua, and the code of an operation follows.

-- too_far is the error FLOOR if a token is too far ahead of the clock.
local function too_far(token)
  if token - now > 31536000000000 then -- driver.FloorAhead, µs
    return redis.error_reply('FLOOR the fencing token is more than a year ahead of this server\'s clock')
  end
end

-- keep_of is how long the record of a token outlives its grant, in ms: ⚑ without a record, any token from the
-- last 24 hours is granted.
local function keep_of(token)
  local keep = 86401000 + math.ceil(math.max(token + block - now, 0) / 1000) -- driver.FenceKeep, and a second
  return math.min(keep, 99999999999) -- eleven digits: three years
end
