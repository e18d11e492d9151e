-- Tell a gate what the database did without it: units sold, released, taken again or added.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] known ids
-- ARGV[1] version that the list begins after  [2] version that it ends with; then five for each change: its version,
--      order's id (empty: an added quota), user (empty: nobody's), units that the gate has more (or, negative, less),
--      request of an order that the gate may not know (empty: no new order)
-- Returns 1: the gate knows the changes, by this call or an earlier one; 0: there is no gate, or it knows too little.
-- The gate's version says what it knows, so a list that comes twice, late or beside another one changes nothing twice.
local version = tonumber(redis.call('HGET', KEYS[1], 'version'))
if not version or version < tonumber(ARGV[1]) then
  return 0
end
for i = 3, #ARGV, 5 do
  local id, user, n, request = ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  -- An order that the gate has admitted as well took its units then.
  if tonumber(ARGV[i]) > version and (request == '' or redis.call('HSETNX', KEYS[3], id, request) == 1) then
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
