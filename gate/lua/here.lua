-- A function that admit.lua, install.lua and lend.lua start with: the run id of the process that runs the script.
-- Gives it, or an empty text on a Redis that doesn't tell, as the one inside the engine's process.
local function here()
  local info = redis.pcall('INFO', 'server')
  if type(info) ~= 'string' then -- a refusal is a table
    return ''
  end
  local _, last = string.find(info, 'run_id:', 1, true)
  return last and string.sub(info, last + 1, last + 40) or ''
end

