-- The server's time in µs, and the last token that a grant reserves now. acquire.lua follows.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local block = now + 20000 -- driver.FenceBlock, µs
