#!lua flags=allow-oom
-- Confirm summaries that were sent. Runs though the server's memory is full: it frees it.
-- KEYS  meta, due, leases, gone; then the cluster of each summary
-- ARGV  incarnation, settings (see _shard.lua); then for each its cluster's id and its revision
-- Returns nothing.
-- Cost  a command a summary, two if its cluster is closed and has samples. Tombstones that are deleted for
--       newer ones are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, gone = KEYS[2], KEYS[3], KEYS[4]
local stream_us = number('stream') or 0

-- What is written to the queues, all at once: a command costs more than what it does.
local confirmed, dues = {}, {}

local stored = #KEYS > 4 and call('MGET', unpack(KEYS, 5))
local clusters = {}  -- one may be named twice
for i = 5, #KEYS do
  local arg = 2 * (i - 4) + 1
  local c = clusters[KEYS[i]] or read_cluster(ARGV[arg], KEYS[i], stored[i - 4])
  clusters[KEYS[i]] = c
  if c and c[C_SNAPSHOT] ~= '' then
    local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, c[C_SNAPSHOT])
    if revision == tonumber(ARGV[arg + 1]) then
      confirmed[#confirmed + 1] = c.id
      c[C_LEASED], c[C_DUE], c[C_EMITTED] = 0, 0, events
      if stream_us > c[C_EMITTED_US] then c[C_EMITTED_US] = stream_us end
      if c[C_STATE] ~= OPEN and state ~= OPEN and events == c[C_EVENTS] then
        add('waiting', -1)
        bury(c)
      else
        local due_us
        if c[C_STATE] ~= OPEN then  -- it was closed meanwhile, or counted more events and was closed again
          due_us = '-inf'
        elseif c[C_EVENTS] > c[C_EMITTED] and every_us >= 0 then
          c[C_DUE], due_us = 1, c[C_EMITTED_US] + every_us
        end
        if due_us then
          dues[#dues + 1] = due_us
          dues[#dues + 1] = c.id
        end
        c[C_SNAPSHOT], c[C_CHOSEN], c.is_changed_text = '', '', true
        c[C_MERGED] = sub(c[C_MERGED], merged * MERGED_CLUSTER_BYTES + 1)
        write_cluster(c)
      end
    end
  end
end

if #confirmed > 0 then
  call('ZREM', leases, unpack(confirmed))
  call('ZREM', due, unpack(confirmed))
end
if #dues > 0 then call('ZADD', due, unpack(dues)) end
write_buried(gone)
write_counters()
for i = 1, 4 do renew(KEYS[i]) end
return redis.status_reply('OK')
