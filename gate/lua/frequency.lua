-- A function that admit.lua and count.lua start with: one request of a user within a window.
-- key: the user's counter. Counter and expiry are set in one step, so no crash leaves a counter that stays.
-- Gives 0 when the request may go on, else the milliseconds until it may be made again; and whether there were more than
-- twice as many as are allowed, so that no script that a client sent twice can have been counted twice only.
local function frequency(key, limit, window_ms)
  if limit <= 0 or redis.call('SET', key, 1, 'PX', window_ms, 'NX') then
    return 0, false
  end
  local count, left_ms = redis.call('INCR', key), redis.call('PTTL', key)
  if left_ms < 0 then -- somebody has taken the expiry off
    redis.call('PEXPIRE', key, window_ms)
    left_ms = window_ms
  end
  return count > limit and math.max(left_ms, 1) or 0, count > 2 * limit
end

