-- Find out which entries the stream has.
-- KEYS[1] stream
-- ARGV[...] ids of entries
-- Returns 1 or 0 for each id.
local present = {}
for i = 1, #ARGV do
  present[i] = #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])
end
return present
