-- The calls of Redis. A read is a redis.call: it ends the script if it fails. A write before the first
-- effect is a try: its error is the refusal. A write after that is a run: the script goes on.

-- try returns nothing and the reply, or the refusal. The refusal names the command, because some versions of
-- Redis do not.
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    return redis.error_reply(reply.err .. " ('" .. string.lower((...)) .. "')")
  end
  return nil, reply
end

-- run returns the reply, or keeps the error for the result.
local written, failed
local function run(...)
  local refusal, reply = try(...)
  if refusal then
    failed = refusal.err
    return nil
  end
  written = true
  return reply
end

-- result is the reply of a script that has written: the error WRITTEN … if a command failed after the first
-- write.
local function result()
  return failed and redis.error_reply((written and 'WRITTEN ' or '') .. failed) or {DONE}
end
