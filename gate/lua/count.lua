-- Count one request of a user, for strategies that don't admit at the gate.
-- KEYS[1] counter of the user
-- ARGV[1] requests allowed in a window, 0: no limit   ARGV[2] window, ms
-- Returns 0: the request is allowed; else ms until the next request is allowed.
return frequency(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]))
