-- Open one shard of a gate. It runs for each shard when all shards are installed.
-- KEYS[1] gate of one shard
-- ARGV[1] its epoch
-- Returns 1: open; 0: the shard is missing, of another epoch, or closed for a newer one.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming')
if gate[1] ~= ARGV[1] or (tonumber(gate[2]) or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'open', '1')
return 1
