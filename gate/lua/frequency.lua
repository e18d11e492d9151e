-- A function at the start of admit.lua and count.lua: count requests of users, each of whom has a limit for a window.
-- key: a hash with the counters of all users. The window begins with the first request, and the hash ends with the
-- window, so that Redis forgets all counters together.
-- users, limits: a user and the requests allowed in a window for each request; 0: the request is not counted
-- Gives two lists with a value for each request: 0 if the request is allowed, else the milliseconds until the next window;
-- and whether the count is above twice the limit. Then there were certainly too many requests, even if the client has
-- sent every script twice because of lost replies.
local function frequency(key, users, limits, window_ms)
  local count, names, retry_ms, flood = {}, {}, {}, {}
  for at, user in ipairs(users) do
    if limits[at] > 0 and not count[user] then
      count[user], names[#names + 1] = 0, user
    end
    retry_ms[at], flood[at] = 0, false
  end
  if #names == 0 then
    return retry_ms, flood
  end
  local left_ms = redis.call('PTTL', key)
  if left_ms ~= -2 then -- -2: there is no hash
    for i, counted in ipairs(redis.call('HMGET', key, unpack(names))) do
      count[names[i]] = tonumber(counted) or 0
    end
  end
  for at, user in ipairs(users) do
    if limits[at] > 0 then
      count[user] = count[user] + 1
      if count[user] > limits[at] then
        retry_ms[at], flood[at] = left_ms > 0 and left_ms or window_ms, count[user] > 2 * limits[at]
      end
    end
  end
  local counters = {}
  for i, user in ipairs(names) do
    counters[2 * i - 1], counters[2 * i] = user, count[user]
  end
  redis.call('HSET', key, unpack(counters))
  if left_ms < 0 then -- there was no hash, or its expiry was removed from outside
    redis.call('PEXPIRE', key, window_ms)
  end
  return retry_ms, flood
end

