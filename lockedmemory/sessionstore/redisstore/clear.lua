-- Removes all exchanges. The mark keeps the place, so Redis refuses earlier writes that come late.
--
-- KEYS, ARGV, Reply: see session.lua.
-- ARGV  6 seq   7 op
local refusal
if there then
  refusal = add(ARGV[6], nil, 'clear', ARGV[7]) -- a late copy must not remove later exchanges
else
  refusal = absent(ARGV[6])
end
if refusal then
  return refusal[1] == TAKEN and not there and cleared == ARGV[7] and {DONE} or refusal
end
-- ⚑ In this order, and the log stays without a mark: the log or the mark refuses older writers.
set_mark(fence .. '-' .. ARGV[6], 'e', ARGV[7])
if there and not failed then
  after('UNLINK', log)
end
return done()
