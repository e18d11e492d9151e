-- Take units from one shard of a gate, for another shard.
-- KEYS[1] gate of the shard
-- ARGV[1] epoch of the gate  [2] units that are needed  [3] instance that moves them
--   [4] number of this move, higher than those of the instance's earlier moves
-- Returns how many units were taken, by this run or by an earlier one whose reply was lost: the units needed or half
--   of those left (rounded down), whichever is more, but at most all that are left; -1: the shard is missing, closed, of another
--   epoch or of another Redis process.
-- The fields "sent" and "received" only grow. Over all shards, the sum of "sent" minus the sum of "received" is the number of
-- units that are on their way, or lost.
local mover = 'transfer_out:' .. ARGV[3] -- an instance makes the moves of a sale one after the other, so the last number is enough
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'open', 'left', 'run_id', mover)
if gate[1] ~= ARGV[1] or gate[2] ~= '1' or gate[4] ~= run_id() then
  return -1
end
local number, before = string.match(gate[5] or '', '^(%d+):(%d+)$')
if number == ARGV[4] then
  return tonumber(before)
end
local left = tonumber(gate[3])
local taken = math.max(math.min(left, math.max(tonumber(ARGV[2]), math.floor(left / 2))), 0)
redis.call('HSET', KEYS[1], 'left', left - taken, mover, ARGV[4] .. ':' .. taken)
redis.call('HINCRBY', KEYS[1], 'sent', taken)
return taken
