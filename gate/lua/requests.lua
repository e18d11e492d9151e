-- A function at the start of admit.lua: count the requests of all attempts of a run, in KEYS[1]. One count for all sales costs
-- Redis less than a count for each.
-- arg, next_gate: the index in ARGV of the first gate's first argument; a function that gets such an index and gives that of
-- the next gate
-- Gives the two lists of frequency.lua, with values for attempts in their order.
local function count_requests(arg, next_gate)
  local counters, limits, n, args = {}, {}, 0, #ARGV
  while arg <= args do
    local attempts = tonumber(ARGV[arg + 3])
    for at = 1, attempts do
      n = n + 1
      counters[n] = ARGV[arg] .. ' ' .. ARGV[arg + 3 + 2 * at]
      limits[n] = tonumber(ARGV[arg + 3 + 2 * attempts + 3 * at])
    end
    arg = next_gate(arg)
  end
  return frequency(KEYS[1], counters, limits, tonumber(ARGV[2]))
end
