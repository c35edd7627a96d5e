-- Answers each lock of a batch. one is the function that a lone script is made of. An error of one
-- lock is its own.
local replies, width = {}, (#ARGV - first) / #KEYS
for i = 1, #KEYS do
  local at = first + (i - 1) * width
  local fine, reply = pcall(one, KEYS[i], ARGV[at + 1], ARGV[at + 2])
  if not fine and type(reply) ~= 'table' then
    reply = redis.error_reply(reply)
  end
  replies[i] = reply
end
return replies
