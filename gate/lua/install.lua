-- Install a gate over an absent or an older, closed one; also over one of this epoch that has not been opened.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] known ids  KEYS[4] stream
-- KEYS[5] staged units by user  KEYS[6] staged known ids
-- ARGV[1] epoch  [2] entries that the stream must have, which are all that were in it at the contents' instant and not
--   settled  [3] consumer group  [4] time at which all keys end, ms  [5] 1: open it; 0: open.lua will; then the fields
--   and values of the gate.
-- Returns 1: installed, by this call or by an earlier one whose reply was lost; 0: the gate there, or the one that it is
--   closed for, is as new or newer; 2: the stream moved, or what was staged has ended: read again.
-- The gate there is closed, so its stream can only have shrunk: an unchanged length is an unchanged stream.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming', 'open')
local epoch, coming, new = tonumber(gate[1]) or 0, tonumber(gate[2]) or 0, tonumber(ARGV[1])
if epoch > new or coming > new then
  return 0
end
if redis.call('HEXISTS', KEYS[5], '') + redis.call('HEXISTS', KEYS[6], '') < 2 then
  return epoch == new and 1 or 2 -- installing takes the staged keys away
end
if epoch == new and gate[3] == '1' then
  return 0
end
if redis.call('XLEN', KEYS[4]) ~= tonumber(ARGV[2]) then
  return 2
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3]) -- to rename over a large key would free it here and now
for i = 6, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'open', ARGV[5], 'expire_ms', ARGV[4], 'server', here())
redis.call('RENAME', KEYS[5], KEYS[2])
redis.call('RENAME', KEYS[6], KEYS[3])
redis.pcall('XGROUP', 'CREATE', KEYS[4], ARGV[3], '0', 'MKSTREAM') -- an error only says that it is there
for i = 1, 4 do
  redis.call('PEXPIREAT', KEYS[i], ARGV[4])
end
return 1
