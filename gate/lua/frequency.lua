-- A function that admit.lua and count.lua start with: one request of a user within a window.
-- key: the user's counter. Counter and expiry are set in one script, so no crash leaves a counter that stays.
-- Gives 0 when the request may go on, else the milliseconds until it may be made again.
local function frequency(key, limit, window_ms)
  if limit <= 0 then
    return 0
  end
  local count = redis.call('INCR', key)
  local left_ms = redis.call('PTTL', key)
  if left_ms < 0 then
    redis.call('PEXPIRE', key, window_ms)
    left_ms = window_ms
  end
  if count > limit then
    return math.max(left_ms, 1)
  end
  return 0
end

