-- Acknowledge settled entries, delete them, and credit what they took in vain.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] stream
-- ARGV[1] consumer group  [2] how many have become orders; for each of these its stream id and its units; then for
--   each of the others four: its stream id, user, units, and what to credit: 'user' the user's units only (sold out:
--   the gate was over by that much), 'all' the user's units and the gate's.
-- Returns how many entries were there. Deleting an entry is the guard: whoever finds it gone touches nothing.
-- The gate's epoch doesn't matter here, since an install counts what its stream still holds.
local found, settled = 0, 0
local live = redis.call('HEXISTS', KEYS[1], 'epoch') == 1 -- else there is no gate, or only close.lua's mark
local last = 2 + 2 * tonumber(ARGV[2])
local ids, units = {}, 0
for i = 3, last, 2 do
  ids[#ids + 1], units = ARGV[i], units + tonumber(ARGV[i + 1])
end
-- Whoever is the first to acknowledge all of them finds them all there; else each is looked at.
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
  redis.call('HSET', KEYS[1], 'inflight', 0) -- entries came and went that this gate has not admitted
end
return found
