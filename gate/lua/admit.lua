-- Admit one attempt: judge it, take its units and append it to the stream, all or nothing.
-- KEYS[1] gate  KEYS[2] units by user  KEYS[3] known ids  KEYS[4] stream  KEYS[5] counter of the user
-- ARGV[1] id  [2] user  [3] quantity  [4] request hash  [5] request key  [6] instance that waits
--      [7] epoch that the caller knows  [8] requests allowed in a window  [9] window, ms
-- Returns {code, ms}: 0 admitted, 1 known id, 2 known id with another request, 3 no gate, 4 gate closed or of
-- an older epoch, 5 too frequent (again in ms), 6 not started, 7 ended, 8 paused, 9 bad quantity,
-- 10 limit reached, 11 sold out.
-- Every check stands before the first write (but the counter's), since Redis takes nothing back.
local retry_ms = frequency(KEYS[5], tonumber(ARGV[8]), tonumber(ARGV[9]))
if retry_ms > 0 then
  return {5, retry_ms}
end

local gate = redis.call('HMGET', KEYS[1], 'epoch', 'open', 'status', 'starts_ms', 'ends_ms', 'limit', 'left')
local epoch = tonumber(gate[1])
if not epoch then
  return {3, 0}
end
if gate[2] ~= '1' or epoch < tonumber(ARGV[7]) then
  return {4, 0}
end

local request = ARGV[3] .. ':' .. ARGV[4]
local known = redis.call('HGET', KEYS[3], ARGV[1])
if known then
  return {known == request and 1 or 2, 0}
end

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if gate[3] == 'closed' then
  return {7, 0}
elseif now_ms < tonumber(gate[4]) then
  return {6, 0}
elseif now_ms >= tonumber(gate[5]) then
  return {7, 0}
elseif gate[3] == 'paused' then
  return {8, 0}
end

local n, limit = tonumber(ARGV[3]), tonumber(gate[6])
if not n or n ~= math.floor(n) or n < 1 or n > limit then
  return {9, 0}
end
if (tonumber(redis.call('HGET', KEYS[2], ARGV[2])) or 0) + n > limit then
  return {10, 0}
end
if tonumber(gate[7]) < n then
  return {11, 0}
end

redis.call('HINCRBY', KEYS[1], 'left', -n)
redis.call('HINCRBY', KEYS[1], 'inflight', n)
redis.call('HINCRBY', KEYS[2], ARGV[2], n)
redis.call('HSET', KEYS[3], ARGV[1], request)
redis.call('XADD', KEYS[4], '*', 'id', ARGV[1], 'user', ARGV[2], 'n', ARGV[3], 'hash', ARGV[4],
  'key', ARGV[5], 'instance', ARGV[6], 'epoch', gate[1])
return {0, 0}
