-- Give units of orders back to the gate, or with negative units take them again.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] changes done
-- ARGV: four for each order: its id, user (empty: nobody's, as an added quota), units, and the stock row's
--   version by which the database did it.
-- Returns how many were new. A version that the gate was installed with, or after, is in its stock already;
-- a later one is remembered and done once.
local base = tonumber(redis.call('HGET', KEYS[1], 'version'))
if not base then
  return 0
end
local done = 0
for i = 1, #ARGV, 4 do
  local user, n, version = ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  if tonumber(version) > base and redis.call('SADD', KEYS[3], version .. ':' .. ARGV[i]) == 1 then
    done = done + 1
    redis.call('HINCRBY', KEYS[1], 'left', n)
    if user ~= '' and redis.call('HINCRBY', KEYS[2], user, -n) <= 0 then
      redis.call('HDEL', KEYS[2], user)
    end
  end
end
if done > 0 then
  redis.call('PEXPIREAT', KEYS[3], redis.call('HGET', KEYS[1], 'expire_ms'))
end
return done
