-- Apply an operator's change of a sale to its gate.
-- KEYS[1] gate  KEYS[2] units by user and by id  KEYS[3] stream
-- ARGV[1] revision of the sale  [2] time when all keys expire, ms; then the fields of the gate that change, and their
--   values
-- Returns 1: changed; 0: there is no gate, or it already has this revision or a later one.
local revision = tonumber(redis.call('HGET', KEYS[1], 'revision'))
if not revision or revision >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'expire_ms', ARGV[2], unpack(ARGV, 3))
for i = 1, 3 do
  redis.call('PEXPIREAT', KEYS[i], ARGV[2])
end
return 1
