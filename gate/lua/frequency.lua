-- A function at the start of admit.lua and count.lua: count one request of a user within a window.
-- key: the user's counter. Counter and expiry are set in one command, so that a crash leaves no counter without
-- expiry.
-- Gives two results: 0 if the request is allowed, else the milliseconds until the next request is allowed; and whether
-- the count is above twice the limit. Then there were certainly too many requests, even if the client has sent every
-- script twice because of lost replies.
local function frequency(key, limit, window_ms)
  if limit <= 0 or redis.call('SET', key, 1, 'PX', window_ms, 'NX') then
    return 0, false
  end
  local count, left_ms = redis.call('INCR', key), redis.call('PTTL', key)
  if left_ms < 0 then -- the expiry was removed from outside
    redis.call('PEXPIRE', key, window_ms)
    left_ms = window_ms
  end
  return count > limit and math.max(left_ms, 1) or 0, count > 2 * limit
end

