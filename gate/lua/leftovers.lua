-- Read entries that were admitted some time ago, by Redis's clock.
-- KEYS[1] stream
-- ARGV[1] how long ago at least, ms  [2] most entries
-- Returns the oldest of these entries: for each its id, and a list of its fields and values.
local time = redis.call('TIME')
local last_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) - tonumber(ARGV[1])
return redis.call('XRANGE', KEYS[1], '-', string.format('%.0f', last_ms), 'COUNT', ARGV[2])
