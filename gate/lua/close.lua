-- Close a gate before a newer one is installed, so that nothing is admitted meanwhile.
-- KEYS[1] gate
-- ARGV[1] epoch of the gate to come
-- Returns 1: closed or absent; 0: the gate there is as new or newer.
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch'))
if not epoch then
  return 1
end
if epoch >= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'open', '0')
return 1
