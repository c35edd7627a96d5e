-- Answers each lock of a batch. one is the function that a lone script is made of. An error of one
-- lock is its own: the string '-' and its text.
--
-- ⚑ No reply in the array is an error reply: go-redis would take the replies after it for those of
-- other calls.
local replies, width = {}, (#ARGV - first) / #KEYS
for i = 1, #KEYS do
  local at = first + (i - 1) * width
  local fine, reply = pcall(one, KEYS[i], ARGV[at + 1], ARGV[at + 2])
  local failure = type(reply) == 'table' and reply.err or not fine and reply
  replies[i] = failure and '-' .. string.gsub(failure, '^%-', '') or reply
end
return replies
