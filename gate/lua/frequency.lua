-- A function at the start of admit.lua and count.lua: count requests of users, each of whom has a limit for a window.
-- key: a hash with the counters of all users. The window begins with the first request, and the hash ends with the
-- window, so that Redis forgets all counters together.
-- users, limits: a user and the requests allowed in a window for each request; 0: the request is not counted
-- Gives two lists with values for the requests that are not allowed: the milliseconds until the next window; and whether the
-- count is above twice the limit. Then there were certainly too many requests, even if the client has sent every script twice
-- because of lost replies.
local function frequency(key, users, limits, window_ms)
  local count, counters, retry_ms, flood = {}, {}, {}, {}
  if math.max(unpack(limits)) == 0 then
    return retry_ms, flood
  end
  local left_ms = redis.call('PTTL', key)
  local counted = left_ms ~= -2 and redis.call('HMGET', key, unpack(users)) or {} -- -2: there is no hash
  for at, user in ipairs(users) do
    if limits[at] > 0 then
      local n = (count[user] or tonumber(counted[at]) or 0) + 1
      count[user], counters[#counters + 1], counters[#counters + 2] = n, user, n
      if n > limits[at] then
        retry_ms[at], flood[at] = left_ms > 0 and left_ms or window_ms, n > 2 * limits[at]
      end
    end
  end
  redis.call('HSET', key, unpack(counters))
  if left_ms < 0 then -- there was no hash, or its expiry was removed from outside
    redis.call('PEXPIRE', key, window_ms)
  end
  return retry_ms, flood
end

