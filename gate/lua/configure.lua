-- Apply an operator's change of a sale to its gate.
-- KEYS[1] gate  KEYS[2] units by user and by id  KEYS[3] stream
-- ARGV[1] revision of the sale  [2] status  [3] start, ms  [4] end, ms  [5] limit  [6] time when all keys expire, ms
-- Returns 1: changed; 0: there is no gate, or it already has this revision or a later one.
local revision = tonumber(redis.call('HGET', KEYS[1], 'revision'))
if not revision or revision >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'revision', ARGV[1], 'status', ARGV[2], 'starts_ms', ARGV[3], 'ends_ms', ARGV[4],
  'limit', ARGV[5], 'expire_ms', ARGV[6])
for i = 1, 3 do
  redis.call('PEXPIREAT', KEYS[i], ARGV[6])
end
return 1
