-- A function at the start of admit.lua, install.lua and transfer_out.lua: find the run id of the Redis that runs the script.
-- Gives the run id, or an empty string if Redis does not report one, as the embedded Redis.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then -- an error is a table
    return ''
  end
  local _, last = string.find(info, 'run_id:', 1, true)
  return last and string.sub(info, last + 1, last + 40) or ''
end

