-- compose returns a record, see record.go. Both tokens together have 32 digits, and keep has 11.
local function compose(state, ending, owner, previous, tokens, keep, payload)
  return 'b2' .. state .. ending .. owner .. previous .. tokens .. keep .. payload
end
