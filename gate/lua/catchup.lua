-- Apply to a gate the changes that the database made without it: units sold, released, taken again or added.
-- KEYS[1] gate  KEYS[2] units by user and by id
-- ARGV[1] version after which the list begins  [2] version with which it ends; then five values for each change:
--      its version, field of the order's id, user (empty: no user), units to add to the gate (negative: to subtract),
--      quantity of an order whose id the gate may lack (0: no new order)
-- Returns 1: the gate has the changes, by this run or an earlier one; 0: there is no gate, or its version is older
--      than ARGV[1], so that earlier changes are missing.
-- Changes up to the gate's version are skipped, so a list that arrives twice, late or together with another one is
-- applied only once.
local version = tonumber(redis.call('HGET', KEYS[1], 'version'))
if not version or version < tonumber(ARGV[1]) then
  return 0
end
for i = 3, #ARGV, 5 do
  local field, user, n, quantity = ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  -- If the gate has admitted the order as well, it took the units at that time.
  if tonumber(ARGV[i]) > version and (quantity == '0' or redis.call('HSETNX', KEYS[2], field, quantity) == 1) then
    redis.call('HINCRBY', KEYS[1], 'left', n)
    if user ~= '' and redis.call('HINCRBY', KEYS[2], user, -n) <= 0 then
      redis.call('HDEL', KEYS[2], user)
    end
  end
end
if version < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'version', ARGV[2])
end
return 1
