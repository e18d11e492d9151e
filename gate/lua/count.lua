-- Count one request of a user, for strategies that don't admit at the gate.
-- KEYS[1] counters
-- ARGV[1] user  [2] requests allowed in a window, 0: no limit  [3] window, ms
-- Returns 0: the request is allowed; else ms until the next request is allowed.
return frequency(KEYS[1], {ARGV[1]}, {tonumber(ARGV[2])}, tonumber(ARGV[3]))[1] or 0
