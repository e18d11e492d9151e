-- Delete settled entries of one or several sales, and give units of refused attempts back to their gates.
-- KEYS[1] gate  KEYS[2] units by user and by id  KEYS[3] stream; then three keys of each other gate
-- ARGV for each gate: [1] number of the gate's values after this one  [2] number of refused attempts. For each of these four
--   values: id of the entry, user, units, and what to give back: 'user' the user's units only (the attempt was refused as sold
--   out, since the gate had too many units), 'all' the user's units and the gate's. Then the entries that have become orders, in
--   groups: the units of each entry, the number of entries, and their ids.
-- Returns for each gate how many of the entries were still in the stream. Counters change only for entries that this run
--   deletes, so that each entry counts once, and a run that is repeated because its reply was lost changes nothing. If the
--   script fails at a gate, for example because a key is damaged, the text of the error stands in place of the number, and the
--   other gates are served. If it fails at all gates, it returns the first error.
-- The gate's epoch doesn't matter here, since an install counts the entries that are still in the stream. Gates at which all
-- entries are orders of one unit are served by ordered.lua.
-- key, arg: the indexes of the gate's first key and of its first argument
local function settle(key, arg)
  local found, extra, orders = 0, 0, arg + 2 + 4 * tonumber(ARGV[arg + 1])
  -- There may be no gate, or only the mark of close.lua.
  local function live() return redis.call('HEXISTS', KEYS[key], 'epoch') == 1 end
  local credits = orders > arg + 2 and live()
  for i = arg + 2, orders - 1, 4 do
    local user, n = ARGV[i + 1], tonumber(ARGV[i + 2])
    if redis.call('XDEL', KEYS[key + 2], ARGV[i]) == 1 then
      found, extra = found + 1, extra + n - 1
      if credits and ARGV[i + 3] == 'all' then
        redis.call('HINCRBY', KEYS[key], 'left', n)
      end
      if credits and redis.call('HINCRBY', KEYS[key + 1], user, -n) <= 0 then
        redis.call('HDEL', KEYS[key + 1], user)
      end
    end
  end
  while orders <= arg + tonumber(ARGV[arg]) do
    local last = orders + 1 + tonumber(ARGV[orders + 1])
    -- All entries of a group have the same number of units, so the number of deletions is enough to count the units.
    local deleted = redis.call('XDEL', KEYS[key + 2], unpack(ARGV, orders + 2, last))
    found, extra, orders = found + deleted, extra + deleted * (tonumber(ARGV[orders]) - 1), last + 1
  end
  if extra > 0 and live() then
    redis.call('HINCRBY', KEYS[key], 'extra', -extra)
  end
  return found
end

return each_gate(1, 3, 1, function(arg) return arg + 1 + tonumber(ARGV[arg]) end, settle)
