-- Gives time, the reply of TIME, and now, in µs.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
