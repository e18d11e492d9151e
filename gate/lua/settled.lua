-- Delete settled entries, and give the units of refused attempts back to the gate.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] stream
-- ARGV[1] instance that calls  [2] number of the call; it always grows  [3] number of groups of entries that have become
--   orders. For each group: the units of each entry, the number of entries, and their ids. Then four values for each
--   other entry: id, user, units, and what to give back: 'user' the user's units only (sold out: the gate had too many
--   units), 'all' the user's units and the gate's.
-- Returns how many entries were still in the stream. Counters change only for entries that this call deletes, so that
--   each entry counts once.
-- The gate's epoch doesn't matter here, since an install counts the entries that are still in its stream.
local caller = 'settled:' .. ARGV[1] -- an instance makes one call at a time, so its last one is enough
local gate = redis.call('HMGET', KEYS[1], 'epoch', 'inflight', caller)
local number, before = string.match(gate[3] or '', '^(%d+):(%d+)$')
if number == ARGV[2] then
  return tonumber(before) -- this is the same call again, because its reply was lost
end
local found, settled, at = 0, 0, 4
local live = gate[1] -- false: there is no gate, or only the mark of close.lua
for _ = 1, tonumber(ARGV[3]) do
  local last = at + 1 + tonumber(ARGV[at + 1])
  -- All entries of a group have the same units, so the number of deletions is enough to count the units.
  local deleted = redis.call('XDEL', KEYS[3], unpack(ARGV, at + 2, last))
  found, settled, at = found + deleted, settled + deleted * tonumber(ARGV[at]), last + 1
end
for i = at, #ARGV, 4 do
  local user, n = ARGV[i + 1], tonumber(ARGV[i + 2])
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
if live and found > 0 then
  -- The gate may not have counted all of the entries, or may lack the field.
  redis.call('HSET', KEYS[1], 'inflight', math.max((tonumber(gate[2]) or 0) - settled, 0), caller, ARGV[2] .. ':' .. found)
end
return found
