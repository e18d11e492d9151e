-- Install a gate (one shard of it) where there is none, or in place of an older one, which close.lua has closed, or of one of
-- this epoch that was never opened.
-- KEYS[1] gate  KEYS[2] units by user and by id  KEYS[3] stream  KEYS[4] staged units by user and by id
-- ARGV[1] epoch  [2] number of entries that the stream must have: those that were in it at the snapshot of the
--   contents and not settled  [3] time when all keys expire, ms  [4] 1: open the gate; 0: open.lua will open it; then
--   the fields and values of the gate
-- Returns 1: installed, by this run or by an earlier one whose reply was lost; 0: there is an open gate of this epoch,
--   or a newer gate, or the gate is closed for a newer one; 2: the stream has another length, or the staged hash has expired,
--   so that the rebuild must start again.
-- The old gate is closed, so its stream can only have shrunk: a stream of the same length is unchanged.
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'coming', 'open')
local epoch, coming, new = tonumber(gate[1]) or 0, tonumber(gate[2]) or 0, tonumber(ARGV[1])
if epoch > new or coming > new then
  return 0
end
if redis.call('HEXISTS', KEYS[4], '') == 0 then
  return epoch == new and 1 or 2 -- a successful install has renamed the staged hash
end
if epoch == new and gate[3] == '1' then
  return 0
end
if redis.call('XLEN', KEYS[3]) ~= tonumber(ARGV[2]) then
  return 2
end
redis.call('UNLINK', KEYS[1], KEYS[2]) -- not left to RENAME, which would block while it frees them
-- Redis finds the first fields of a hash fastest, so those that admit.lua reads are near the beginning.
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'open', ARGV[4], 'run_id', run_id())
for i = 5, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'expire_ms', ARGV[3])
redis.call('RENAME', KEYS[4], KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('XADD', KEYS[3], 'MAXLEN', 0, '0-1', 'attempt', '') -- makes the stream, empty, so that it gets an expiry below
end
for i = 1, 3 do
  redis.call('PEXPIREAT', KEYS[i], ARGV[3])
end
return 1
