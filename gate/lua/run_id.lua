-- A function at the start of admit.lua, install.lua and transfer_out.lua: find the run id of the Redis that runs the script.
-- Gives the run id, or an empty string if Redis does not report one. The embedded Redis does not.
local known_run_id
local function run_id()
  if not known_run_id then
    local info = redis.pcall('INFO', 'server')
    local _, last = string.find(type(info) == 'string' and info or '', 'run_id:', 1, true) -- an error is a table
    known_run_id = last and string.sub(info, last + 1, last + 40) or ''
  end
  return known_run_id
end

