-- One POST over and over: wrk -s post.lua URL -- BODY 'Name: value' ...
-- The last line of output is: requests, seconds, errors, then latency p50 and p99 in microseconds.
-- wrk builds the request once, from what init() leaves behind; no Lua runs during the load.

function init(args)
   wrk.method = "POST"
   wrk.body = args[1]
   for i = 2, #args do
      local name, value = args[i]:match("^(.-): (.*)$")
      wrk.headers[name] = value
   end
end

function done(summary, latency, requests)
   local e = summary.errors
   io.write(string.format("%d %.6f %d %.0f %.0f\n", summary.requests, summary.duration / 1e6,
      e.connect + e.read + e.write + e.status + e.timeout,
      latency:percentile(50), latency:percentile(99)))
end
