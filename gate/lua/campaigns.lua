-- A function at the start of admit.lua: count what users have in all sales of campaigns.
-- arg: the index in ARGV of the first campaign's first argument. ARGV[arg - 1] is the number of campaigns. The arguments of a
-- campaign are its limit, the number of its keys and the number of its users, then the users. The keys of the campaigns, each
-- with the units by user of one sale, follow KEYS[1].
-- Gives a list of the campaigns, each with its limit and its units by user, and the indexes of the first key and the first
-- argument after those of all campaigns.
local function units_of_campaigns(arg)
  local campaigns, key = {}, 2
  for c = 1, tonumber(ARGV[arg - 1]) do
    local campaign, users = { limit = tonumber(ARGV[arg]), units = {} }, tonumber(ARGV[arg + 2])
    for i = arg + 3, arg + 2 + users do campaign.units[ARGV[i]] = 0 end
    for _ = 1, tonumber(ARGV[arg + 1]) do
      -- The units in a damaged key are not counted: the key must not stop the other sales, and the database checks the limit.
      local held = redis.pcall('HMGET', KEYS[key], unpack(ARGV, arg + 3, arg + 2 + users))
      for i = 1, users do
        if held[i] then -- the user has units in this sale
          local user = ARGV[arg + 2 + i]
          campaign.units[user] = campaign.units[user] + (tonumber(held[i]) or 0)
        end
      end
      key = key + 1
    end
    campaigns[c], arg = campaign, arg + 3 + users
  end
  return campaigns, key, arg
end

