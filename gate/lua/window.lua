-- A function at the start of admit.lua: find out whether a sale admits attempts now.
-- gate: a list whose first five values are epoch, open, status, starts_ms and ends_ms, and whose eighth is run_id
-- least_epoch: a gate of an older epoch admits nothing. Neither does a gate that was installed on another Redis process.
-- Gives 0 if the sale admits attempts, else the code of admit.lua for attempts that are neither known nor too frequent.
local now_ms -- the same for all gates of a run
local function window(gate, least_epoch)
  local epoch = tonumber(gate[1])
  if not epoch then
    return 3
  elseif gate[2] ~= '1' or epoch < least_epoch or gate[8] ~= run_id() then
    return 4
  elseif gate[3] == 'closed' then
    return 7
  end
  if not now_ms then
    local time = redis.call('TIME')
    now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  end
  if now_ms < tonumber(gate[4]) then
    return 6
  elseif now_ms >= tonumber(gate[5]) then
    return 7
  end
  return gate[3] == 'paused' and 8 or 0
end

