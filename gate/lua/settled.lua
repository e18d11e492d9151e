-- Delete settled entries of one or several sales, and give the units of refused attempts back to their gates.
-- KEYS[1] gate  KEYS[2] units by user and by id  KEYS[3] stream; then three keys of each other gate
-- ARGV[1] instance that calls  [2] number of the call; it always grows; then for each gate: [1] how many of its values
--   follow  [2] number of groups of entries that have become orders. For each group: the units of each entry, the number of
--   entries, and their ids. Then four values for each other entry: id, user, units, and what to give back: 'user' the user's
--   units only (sold out: the gate had too many units), 'all' the user's units and the gate's.
-- Returns for each gate how many entries were still in the stream. Counters change only for entries that this call deletes,
--   so that each entry counts once. If the script fails at a gate, for example because a key is damaged, the gate has the
--   text of the error instead, and the other gates are served.
-- The gate's epoch doesn't matter here, since an install counts the entries that are still in its stream.
local caller = 'settled:' .. ARGV[1] -- an instance makes one call at a time, so its last one is enough
-- key, arg: the indexes of the gate's first key and of its first argument
local function settle(key, arg)
  local gate = redis.call('HMGET', KEYS[key], 'epoch', 'inflight', caller)
  local number, before = string.match(gate[3] or '', '^(%d+):(%d+)$')
  if number == ARGV[2] then
    return tonumber(before) -- this is the same call again, because its reply was lost
  end
  local found, settled, at = 0, 0, arg + 2
  local live = gate[1] -- false: there is no gate, or only the mark of close.lua
  for _ = 1, tonumber(ARGV[arg + 1]) do
    local last = at + 1 + tonumber(ARGV[at + 1])
    -- All entries of a group have the same units, so the number of deletions is enough to count the units.
    local deleted = redis.call('XDEL', KEYS[key + 2], unpack(ARGV, at + 2, last))
    found, settled, at = found + deleted, settled + deleted * tonumber(ARGV[at]), last + 1
  end
  for i = at, arg + tonumber(ARGV[arg]), 4 do
    local user, n = ARGV[i + 1], tonumber(ARGV[i + 2])
    if redis.call('XDEL', KEYS[key + 2], ARGV[i]) == 1 then
      found, settled = found + 1, settled + n
      if live and ARGV[i + 3] == 'all' then
        redis.call('HINCRBY', KEYS[key], 'left', n)
      end
      if live and redis.call('HINCRBY', KEYS[key + 1], user, -n) <= 0 then
        redis.call('HDEL', KEYS[key + 1], user)
      end
    end
  end
  if live and found > 0 then
    -- The gate may not have counted all of the entries, or may lack the field.
    redis.call('HSET', KEYS[key], 'inflight', math.max((tonumber(gate[2]) or 0) - settled, 0), caller, ARGV[2] .. ':' .. found)
  end
  return found
end

return each_gate(1, 3, 3, function(arg) return arg + 1 + tonumber(ARGV[arg]) end, settle)
