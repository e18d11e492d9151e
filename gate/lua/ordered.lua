-- Delete entries of one or several sales that have become orders of one unit each, as most do. settled.lua would do the same
-- with more keys and values, which cost Redis as much as the deletions.
-- KEYS[1] and following: the streams
-- ARGV for each stream: [1] the number of its entries; then their ids
-- Returns a number for each stream: how many of these entries this run has deleted from it. If the key of a stream is damaged,
-- the text of the error stands in place of the number, and the other streams are served. If all are damaged, it returns the
-- first error.
local function delete(key, arg) return redis.call('XDEL', KEYS[key], unpack(ARGV, arg + 1, arg + tonumber(ARGV[arg]))) end

return each_gate(1, 1, 1, function(arg) return arg + 1 + tonumber(ARGV[arg]) end, delete)
