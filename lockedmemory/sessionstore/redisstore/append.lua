-- Appends an exchange.
--
-- KEYS, ARGV, Reply: see session.lua.
-- ARGV  6 seq   7 op   8, 9 token and seq of driver.Access.Need
--       10 field of the turn ID, or ''   11 its number   12 item of the record   13 RememberTurns in ms
--       14 '1' for the first access of the lease   15… the entry

-- ⚑ A write without an effect, as in session.lua: a read-only replica may know an ID that is deleted.
local writes = had and try('HDEL', ids, '')
if type(writes) == 'table' then
  return writes
elseif had and string.sub(had, 1, DIGEST) ~= string.sub(ARGV[12], 1, DIGEST) then
  return {CONFLICT}
elseif had then
  show() -- refused or not: the exchange is stored
  return finish({KNOWN})
end

-- gone reports whether the exchanges that the lease has read or stored have disappeared, and no Clear or
-- Delete says why.
local function gone()
  local need, mark = tonumber(ARGV[8]), tonumber(token or 0)
  if need == 0 then
    return token == fence and state == 'l'
  end
  local emptied = state == 'e' and (cleared ~= '' or deleted == token)
  return not emptied or mark < need or mark == need and tonumber(seq) <= tonumber(ARGV[9])
end

local refusal = not there and absent(n)
if refusal then
  return refusal
elseif not there and gone() then
  return {GONE}
end

refusal = record and note()
refusal = refusal or add(n, ARGV[7], unpack(ARGV, 15))
if refusal then
  if record then
    take_back()
  end
  return refusal
end
on_entry(0)
if record then
  prune()
end
return finish(done())
