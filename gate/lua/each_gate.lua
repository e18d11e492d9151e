-- A function at the start of admit.lua, ordered.lua and settled.lua: serve several gates in one run, each for itself.
-- first, keys: the index in KEYS of the first gate's first key, and how many keys each gate has
-- arg: the index in ARGV of the first gate's first argument; next_arg: a function that gets the index of a gate's first argument
-- and gives the index of the next gate's first argument
-- serve: a function that gets the indexes of a gate's first key and first argument and gives the reply for the gate
-- Gives the replies in a list. If serve fails at a gate, the text of the error stands in place of its reply, and the other
-- gates are served. If serve fails at every gate, each_gate gives the first error as the error of the whole script, which the
-- client understands.
local function each_gate(first, keys, arg, next_arg, serve)
  local replies, n, any = {}, 0, false
  for key = first, #KEYS, keys do
    local done, reply = pcall(serve, key, arg)
    if not done then -- older versions of Redis raise a text, others a table
      reply = type(reply) == 'table' and reply.err or tostring(reply)
    end
    n = n + 1
    replies[n], any, arg = reply, any or done, next_arg(arg)
  end
  return any and replies or { err = replies[1] }
end

