-- Load for wrk: each thread sends the requests of its own share of a file, in turn, over and over.
-- Arguments: 1 file of whole requests  2 bytes of each: all have the same  3 threads
--   4 where in its share a thread starts, 0 to 1  5 "once" ends wrk when all were sent (one thread only)
local ffi = require("ffi")
ffi.cdef([[
  int pipe(int ends[2]);
  long read(int file, void *buffer, size_t bytes);
  long write(int file, const void *buffer, size_t bytes);
  int kill(int process, int signal);
  int getpid(void);
]])

local threads_made = 0
local ends = ffi.new("int[2]")

-- wrk starts a thread before it readies the next, and its clock after the last: what is sent meanwhile would count as
-- sent in no time. So all wait for a byte from a pipe, which the last one fills.
function setup(thread)
  if threads_made == 0 then assert(ffi.C.pipe(ends) == 0) end
  thread:set("number", threads_made)
  thread:set("pipe_out", ends[0])
  thread:set("pipe_in", ends[1])
  threads_made = threads_made + 1
end

function init(args)
  local threads = tonumber(args[3])
  bytes = tonumber(args[2])
  local file = assert(io.open(args[1], "rb"))
  count = math.floor(file:seek("end") / bytes / threads)
  file:seek("set", number * count * bytes)
  requests = file:read(count * bytes) -- one string: a million small ones would take seconds to make
  file:close()
  next_request = math.floor(tonumber(args[4]) * count)
  once = args[5] == "once"
  waiting, tried = true, number > 0 -- wrk tries the first thread's request while it readies it
  if number == threads - 1 then ffi.C.write(pipe_in, string.rep("x", threads), threads) end
end

function request()
  if not tried then
    tried = true
    return requests:sub(1, bytes)
  end
  if waiting then
    waiting = false
    ffi.C.read(pipe_out, ffi.new("char[1]"), 1)
  end
  if next_request == count then
    next_request = 0
    if once then -- the thread ends at once; SIGINT has wrk print its figures now and not at the end of its time
      wrk.thread:stop()
      ffi.C.kill(ffi.C.getpid(), 2)
    end
  end
  next_request = next_request + 1
  return requests:sub((next_request - 1) * bytes + 1, next_request * bytes)
end

-- wrk calls done with the figures of all threads. It counts a status of 400 and above as an error of its own kind.
function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests_per_second":%f,"p50_ms":%f,"p99_ms":%f,"requests":%d,"refused":%d,"errors":%d,"bytes_read":%d}',
    summary.requests * 1e6 / summary.duration, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, summary.requests,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout, summary.bytes))
end
