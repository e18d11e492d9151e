-- Close a gate (one shard of it) before a newer one is installed, so that nothing is admitted meanwhile.
-- KEYS[1] gate
-- ARGV[1] epoch of the gate to come
-- Returns 1: closed, also if there was no gate; 0: the gate is of this epoch or a newer one, or is closed for a newer
--   one.
-- The epoch to come is stored as a mark. It prevents a rebuild of an older epoch from installing its gate later.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming')
if (tonumber(gate[1]) or 0) >= tonumber(ARGV[1]) or (tonumber(gate[2]) or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'open', '0', 'coming', ARGV[1])
if not gate[1] then
  redis.call('PEXPIRE', KEYS[1], 60000) -- a mark without a gate must not stay for ever
end
return 1
