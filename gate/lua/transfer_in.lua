-- Give a shard of a gate the units that transfer_out.lua has taken out of other shards.
-- KEYS[1] gate of the shard
-- ARGV[1] epoch of the gate  [2] units  [3] instance that moves them  [4] number of this move, higher than those of the
--   instance's earlier moves
-- Returns 1: given, by this run or by an earlier one whose reply was lost; 0: the shard is missing or of another epoch.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
local mover = 'transfer_in:' .. ARGV[3] -- an instance makes the moves of a sale one after the other, so the last number is enough
if tonumber(redis.call('HGET', KEYS[1], mover) or 0) < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[1], mover, ARGV[4])
  redis.call('HINCRBY', KEYS[1], 'left', ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'received', ARGV[2])
end
return 1
