#!lua flags=allow-oom
-- Close clusters that have expired or are above the cap, and hand out garbage to be purged. Runs
-- though the server's memory is full: it frees it.
-- KEYS  meta, expiry, recency, due, garbage, gone, heads
-- ARGV  incarnation, settings (see _shard.lua), whether every cluster is to be closed (0 or 1),
--       clusters to sweep, pieces of garbage to return, the clock at the
--       beginning of a round that has renewed every slice and table (seconds; '' if no round has
--       ended since the last call)
-- Returns {1, nothing, whether more is to be swept, garbage …}, as record does.
-- Cost  four commands a cluster swept.
local reply = lost()
if reply then return reply end

local keys = {expiry = KEYS[2], recency = KEYS[3], due = KEYS[4], garbage = KEYS[5], gone = KEYS[6]}
local steps = tonumber(ARGV[4])
local more
if ARGV[3] == '1' then
  local all = call('ZRANGE', keys.recency, 0, steps - 1)
  local cluster = load_clusters(all)
  for i = 1, #all do
    local c = cluster(i)
    if c and c[C_STATE] == OPEN then
      close(keys, c, ENDED)
    else
      leave(keys, all[i], c)
    end
  end
  write_closed(keys)
  more = #all == steps
else
  more = sweep(keys, advance(KEYS[7]), steps)
end
write_counters()
if ARGV[6] ~= '' then call('HSET', META, 'kept', ARGV[6], 'kept_for', ttl) end
renew(META)
renew(keys.due)
local answer = garbage(keys.garbage, tonumber(ARGV[5]))
if #answer > 0 then renew(keys.garbage) end
table.insert(answer, 1, more and 1 or 0)
table.insert(answer, 1, '')
table.insert(answer, 1, 1)
return answer
