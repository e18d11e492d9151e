-- A function at the start of admit.lua and count.lua: count requests of users to sales.
-- key: the hash with the counters of all users. A window begins with the first request, and the hash expires at the end of the
-- window, so that Redis forgets all counters together.
-- counters, limits: two lists with a value for each request: a sale and a user, with a space between; and how many requests of
-- this user to this sale are allowed in a window, 0: the request is not counted
-- Gives two lists with values for the requests that are not allowed: the milliseconds until the next window; and whether the
-- count is above twice the limit. Above twice the limit there were certainly too many requests, even if the client has sent
-- every script twice because of lost replies.
local function frequency(key, counters, limits, window_ms)
  local count, new, last, retry_ms, flood = {}, {}, 0, {}, {}
  if math.max(unpack(limits)) == 0 then
    return retry_ms, flood
  end
  local left_ms = redis.call('PTTL', key)
  local counted = left_ms ~= -2 and redis.pcall('HMGET', key, unpack(counters)) or {} -- -2: there is no hash
  if counted.err then -- the key is damaged, which must not stop the sales
    redis.call('DEL', key)
    left_ms = -2
  end
  for at, counter in ipairs(counters) do
    if limits[at] > 0 then
      local n = (count[counter] or tonumber(counted[at]) or 0) + 1
      count[counter], new[last + 1], new[last + 2], last = n, counter, n, last + 2
      if n > limits[at] then
        retry_ms[at], flood[at] = left_ms > 0 and left_ms or window_ms, n > 2 * limits[at]
      end
    end
  end
  redis.call('HSET', key, unpack(new))
  if left_ms < 0 then -- there was no hash, or its expiry was removed from outside
    redis.call('PEXPIRE', key, window_ms)
  end
  return retry_ms, flood
end
