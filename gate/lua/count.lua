-- Count one request of a user to a sale, for strategies that don't admit at the gate.
-- KEYS[1] counters of requests
-- ARGV[1] sale and user, with a space between  [2] requests allowed in a window, 0: no limit  [3] window, ms
-- Returns 0: the request is allowed; else ms until the next request is allowed.
return frequency(KEYS[1], {ARGV[1]}, {tonumber(ARGV[2])}, tonumber(ARGV[3]))[1] or 0
