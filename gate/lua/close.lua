-- Close a gate before a newer one is installed, so that nothing is admitted meanwhile.
-- KEYS[1] gate
-- ARGV[1] epoch of the gate to come
-- Returns 1: closed, also if there was none; 0: the gate there is as new or newer, or is closed for a newer one.
-- The coming epoch stays as a mark, which keeps a rebuild that was overtaken from installing its older gate.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming')
if (tonumber(gate[1]) or 0) >= tonumber(ARGV[1]) or (tonumber(gate[2]) or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'open', '0', 'coming', ARGV[1])
if not gate[1] then
  redis.call('PEXPIRE', KEYS[1], 60000) -- a mark alone must not stay for ever
end
return 1
