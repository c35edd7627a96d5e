-- The replies of the scripts of a session, and their calls of Redis. It is the first part of each
-- script.
--
-- KEYS, ARGV: see session.lua.
-- Reply {DONE}; another outcome, see session.lua; the error WRITTEN … if a command failed after the
--       first write
local DONE = 0
local log, idle = KEYS[1], tonumber(ARGV[3])
local fence, accepted, wait_fence, frees = string.match(ARGV[1], '^(%d+) (%d+) (%d+) (%a+)$')

-- try is redis.pcall. An error names the command, because some versions of Redis do not.
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    return redis.error_reply(reply.err .. " ('" .. string.lower((...)) .. "')")
  end
  return reply
end

-- run is try that keeps an error for the result: the script continues.
local written, failed
local function run(...)
  local reply = try(...)
  if type(reply) == 'table' and reply.err then
    failed = reply.err
    return nil
  end
  written = true
  return reply
end

-- result is the reply of a call that has written.
local function result()
  return failed and redis.error_reply((written and 'WRITTEN ' or '') .. failed) or {DONE}
end
