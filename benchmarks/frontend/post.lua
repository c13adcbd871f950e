-- wrk's side of `cargo xtask bench frontend`: one 400-byte POST again and again, and the counts as one line.
-- There is no request() or response() here: wrk then sends a prepared request, and Lua costs nothing.

wrk.method = "POST"
wrk.path = "/v1/systemone"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"text":"' .. string.rep("x", 400 - 11) .. '"}'

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'bench: {"microseconds":%d,"requests":%d,"connect_errors":%d,"read_errors":%d,"write_errors":%d,'
      .. '"status_errors":%d,"timeouts":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.duration, summary.requests, errors.connect, errors.read, errors.write,
    errors.status, errors.timeout, latency:percentile(50), latency:percentile(99)
  ))
end
