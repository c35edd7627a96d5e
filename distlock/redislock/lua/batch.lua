-- Answers each lock of a batch. The function one has the code of the lone script; script.go joins them.
-- An error of one lock is its own: the string '-' and its text.
--
-- ⚑ No reply in the array is an error reply: go-redis would take the replies after it for those of
-- other calls.
local replies, width = {}, (#ARGV - shared_args) / #KEYS
for i = 1, #KEYS do
  local at = shared_args + (i - 1) * width
  local fine, reply = pcall(one, KEYS[i], ARGV[at + 1], ARGV[at + 2])
  local failure = type(reply) == 'table' and reply.err or not fine and reply
  replies[i] = failure and '-' .. string.gsub(failure, '^%-', '') or reply
end
return replies
