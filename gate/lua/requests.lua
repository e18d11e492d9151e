-- A function at the start of admit.lua: count the requests of all attempts of a run, in KEYS[1]. One call for all sales costs
-- Redis less than one for each.
-- arg, next_gate: the index in ARGV of the first gate's first argument; a function that gets such an index and gives that of
-- the next gate
-- Gives the two lists of frequency.lua, with values for attempts in their order.
local function count_requests(arg, next_gate)
  local counters, limits = {}, {}
  while arg <= #ARGV do
    for i = arg + 4, next_gate(arg) - 1, 5 do
      counters[#counters + 1], limits[#limits + 1] = ARGV[arg] .. ' ' .. ARGV[i + 1], tonumber(ARGV[i + 4])
    end
    arg = next_gate(arg)
  end
  return frequency(KEYS[1], counters, limits, tonumber(ARGV[2]))
end
