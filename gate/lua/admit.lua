-- Admit attempts on one or several sales, those on a sale in the order of their arrival: judge each, take its units and
-- append it to the stream.
-- KEYS[1] counters of requests  [2] and following: for each campaign of these sales, the units by user of all its sales;
--      then three keys for each gate: gate, units by user and by id, stream
-- ARGV[1] instance on which the buyers wait  [2] window of the counters, ms  [3] number of campaigns. For each campaign:
--      [1] limit  [2] number of its keys  [3] number of users; then the users, each once. Then for each gate: [1] sale
--      [2] newest epoch that the caller has read  [3] place of its campaign in the list, 0: none  [4] number of attempts;
--      then for each attempt the field of its id, which is the id behind a space, and its user; then for each attempt its
--      quantity, idempotency key, and requests allowed in a window
-- Returns a list for each gate: the gate's epoch (0: no gate), then two values for each attempt: a code, and the id of the new
-- entry (code 0), the ms until the next request is allowed (code 5), or 0. If the script fails at a gate, for example
-- because a key is damaged, the text of the error stands in place of the gate's list, and the other gates are served. If it
-- fails at all gates, it returns the first error.
-- Codes: 0 admitted, 1 known id, 2 known id with another quantity, 3 no gate, 4 gate closed, of an older epoch or of
-- another Redis process, 5 too frequent, 6 not started, 7 ended, 8 paused, 9 bad quantity, 10 limit reached,
-- 11 sold out.
-- At each gate, all attempts are judged before anything is written, since Redis does not undo the writes of a script that fails.
-- Only the counters of requests are written before.
local campaigns, first_key, first_arg = units_of_campaigns(4)
local function next_gate(arg) return arg + 4 + 5 * tonumber(ARGV[arg + 3]) end
local retry_ms, flood = count_requests(first_arg, next_gate)
local before = 0 -- the number of attempts on the gates that were served before

-- key, arg: the indexes of the gate's first key and of its first argument
-- With many sales most gates of a run have one attempt. Each table is made with room for one, since Lua takes long to enlarge
-- small tables value by value.
local function admit(key, arg)
  local attempts, request, campaign = tonumber(ARGV[arg + 3]), before, campaigns[tonumber(ARGV[arg + 2])]
  local first, rest = arg + 4, arg + 4 + 2 * attempts
  before = before + attempts

  local gate = redis.call('HMGET', KEYS[key], 'epoch', 'open', 'status', 'starts_ms', 'ends_ms', 'limit', 'left', 'run_id')
  local code = window(gate, tonumber(ARGV[arg + 1])) -- for attempts that are neither known nor too frequent
  local limit, left = tonumber(gate[6]), tonumber(gate[7])
  local reply = { tonumber(gate[1]) or 0, 0, 0 }
  local units = { [ARGV[first]] = false, [ARGV[first + 1]] = false } -- by field; what this run admits is added
  if code ~= 3 and code ~= 4 then
    for at, value in ipairs(redis.call('HMGET', KEYS[key + 1], unpack(ARGV, first, rest - 1))) do
      units[ARGV[first + at - 1]] = value
    end
  end

  local new, last, taken = { 0, 0, 0, 0 }, 0, 0 -- fields and values to write, and the index of the last
  for at = 1, attempts do
    local id, user, quantity = ARGV[first + 2 * at - 2], ARGV[first + 2 * at - 1], ARGV[rest + 3 * at - 3]
    local n = tonumber(quantity)
    local held, answer, wait_ms = tonumber(units[user]) or 0, code, 0
    if units[id] and not flood[request + at] then
      -- A known id is answered even if the request came too soon: the client may have sent the script twice, and
      -- the first run has admitted the attempt.
      answer = units[id] == quantity and 1 or 2
    elseif retry_ms[request + at] then
      answer, wait_ms = 5, retry_ms[request + at]
    elseif code ~= 0 then
      -- The code of the window stays.
    elseif not n or n ~= math.floor(n) or n < 1 or n > limit then
      answer = 9
    elseif held + n > limit or campaign and campaign.units[user] + n > campaign.limit then
      answer = 10
    elseif left < n then
      answer = 11
    else
      left, taken, units[id], units[user] = left - n, taken + n, quantity, held + n
      if campaign then campaign.units[user] = campaign.units[user] + n end
      new[last + 1], new[last + 2], new[last + 3], new[last + 4], last = id, quantity, user, units[user], last + 4
    end
    reply[2 * at], reply[2 * at + 1] = answer, wait_ms
  end

  if taken > 0 then
    redis.call('HSET', KEYS[key], 'left', left)
    if taken > last / 4 then -- extra has the units in flight beyond one for each entry
      redis.call('HINCRBY', KEYS[key], 'extra', taken - last / 4)
    end
    redis.call('HSET', KEYS[key + 1], unpack(new, 1, last))
    local gated = ' ' .. gate[1] .. ' ' .. ARGV[1] .. ' ' -- epoch and instance are the same for all entries
    for at = 1, attempts do
      if reply[2 * at] == 0 then
        local i, j = first + 2 * at - 2, rest + 3 * at - 3
        reply[2 * at + 1] = redis.call('XADD', KEYS[key + 2], '*', 'attempt',
          string.sub(ARGV[i], 2) .. ' ' .. ARGV[i + 1] .. ' ' .. ARGV[j] .. gated .. ARGV[j + 1])
      end
    end
  end
  return reply
end

return each_gate(first_key, 3, first_arg, next_gate, admit)
