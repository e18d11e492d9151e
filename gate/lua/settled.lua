-- Acknowledge settled entries, delete them, and credit what they took in vain.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] stream
-- ARGV[1] consumer group; then four for each entry: its stream id, user, units, and what to credit:
--   '-' nothing (an order), 'user' the user's units only (sold out: the gate was over by that much),
--   'all' the user's units and the gate's.
-- Returns how many entries were there. Deleting an entry is the guard: whoever finds it gone touches nothing.
-- The gate's epoch doesn't matter here, since an install counts what its stream still holds.
local found = 0
local live = redis.call('HEXISTS', KEYS[1], 'epoch') == 1 -- else there is no gate, or only close.lua's mark
for i = 2, #ARGV, 4 do
  redis.call('XACK', KEYS[3], ARGV[1], ARGV[i])
  if redis.call('XDEL', KEYS[3], ARGV[i]) == 1 then
    found = found + 1
    local user, n, credit = ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
    if live then
      redis.call('HINCRBY', KEYS[1], 'inflight', -n)
      if credit == 'all' then
        redis.call('HINCRBY', KEYS[1], 'left', n)
      end
      if credit ~= '-' and redis.call('HINCRBY', KEYS[2], user, -n) <= 0 then
        redis.call('HDEL', KEYS[2], user)
      end
    end
  end
end
return found
