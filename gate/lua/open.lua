-- Open one part of a gate. It runs for each part when all parts are installed.
-- KEYS[1] gate of one part
-- ARGV[1] its epoch
-- Returns 1: open; 0: the part is missing, of another epoch, or closed for a newer one.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming')
if gate[1] ~= ARGV[1] or (tonumber(gate[2]) or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'open', '1')
return 1
