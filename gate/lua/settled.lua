-- Acknowledge and delete settled entries, and give the units of refused attempts back to the gate.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] stream
-- ARGV[1] consumer group  [2] number of entries that have become orders; then two values for each of these: stream id
--   and units; then four for each other entry: stream id, user, units, and what to give back: 'user' the user's units
--   only (sold out: the gate had too many units), 'all' the user's units and the gate's
-- Returns how many entries were still in the stream. Counters change only for entries that this call deletes, so that
--   each entry counts once.
-- The gate's epoch doesn't matter here, since an install counts the entries that are still in its stream.
local found, settled = 0, 0
local live = redis.call('HEXISTS', KEYS[1], 'epoch') == 1 -- false: there is no gate, or only the mark of close.lua
local last = 2 + 2 * tonumber(ARGV[2])
local ids, units = {}, 0
for i = 3, last, 2 do
  ids[#ids + 1], units = ARGV[i], units + tonumber(ARGV[i + 1])
end
-- If this call acknowledges all of them, no other call has settled any. Else each entry is deleted by itself.
if #ids > 0 and redis.call('XACK', KEYS[3], ARGV[1], unpack(ids)) == #ids then
  found = redis.call('XDEL', KEYS[3], unpack(ids))
  settled = found == #ids and units or 0
else
  for i = 3, last, 2 do
    if redis.call('XDEL', KEYS[3], ARGV[i]) == 1 then
      found, settled = found + 1, settled + tonumber(ARGV[i + 1])
    end
  end
end
for i = last + 1, #ARGV, 4 do
  local user, n = ARGV[i + 1], tonumber(ARGV[i + 2])
  redis.call('XACK', KEYS[3], ARGV[1], ARGV[i])
  if redis.call('XDEL', KEYS[3], ARGV[i]) == 1 then
    found, settled = found + 1, settled + n
    if live and ARGV[i + 3] == 'all' then
      redis.call('HINCRBY', KEYS[1], 'left', n)
    end
    if live and redis.call('HINCRBY', KEYS[2], user, -n) <= 0 then
      redis.call('HDEL', KEYS[2], user)
    end
  end
end
if live and settled > 0 and redis.call('HINCRBY', KEYS[1], 'inflight', -settled) < 0 then
  redis.call('HSET', KEYS[1], 'inflight', 0) -- entries were settled that this gate has not counted
end
return found
