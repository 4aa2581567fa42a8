#!lua flags=allow-oom
-- Confirm summaries that were sent. Runs though the server's memory is full: it frees it.
-- KEYS  meta, due, leases, gone; then the cluster of each summary
-- ARGV  incarnation, settings (see _shard.lua); then for each its cluster's id and its revision
-- Returns nothing.
-- Cost  three commands a summary, four if its cluster is closed, and two a tombstone that is deleted for
--       a newer one. Those are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, gone = KEYS[2], KEYS[3], KEYS[4]
local stream_us = number('stream') or 0

-- What is written to the queues, all at once: a command costs more than what it does.
local confirmed, dues, buried = {}, {}, {}

local kept_ms = string.format('%.0f', math.max(1, math.ceil(retention_us / 1000)))
local function bury(c)
  buried[#buried + 1] = c.id
  add('waiting', -1)
  call('DEL', c.key)
  c[C_STATE], c[C_UNTIL_US], c[C_NAMES], c[C_SEARCHABLE], c[C_SAMPLES], c[C_DUE] = GONE, now_us + retention_us, 0, 0, 0, 0
  call('HSET', c.key, 'n', pack_cluster(c))
  call('PEXPIRE', c.key, kept_ms)
end

for i = 5, #KEYS do
  local arg = 2 * (i - 4) + 1
  local stored = call('HMGET', KEYS[i], 'n', 'z', 'm')
  local c = stored[1] and stored[2] and unpack_cluster(stored[1])
  if c then
    c.id, c.key = ARGV[arg], KEYS[i]
    local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, stored[2])
    if revision == tonumber(ARGV[arg + 1]) then
      confirmed[#confirmed + 1] = c.id
      c[C_LEASED], c[C_DUE], c[C_EMITTED] = 0, 0, events
      if stream_us > c[C_EMITTED_US] then c[C_EMITTED_US] = stream_us end
      if c[C_STATE] ~= OPEN and state ~= OPEN and events == c[C_EVENTS] then
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
        call('HDEL', c.key, 'z', 'y')
        if merged > 0 then call('HSET', c.key, 'm', sub(stored[3], merged * MERGED_CLUSTER_BYTES + 1)) end
        call('HSET', c.key, 'n', pack_cluster(c))
      end
    end
  end
end

if #confirmed > 0 then
  call('ZREM', leases, unpack(confirmed))
  call('ZREM', due, unpack(confirmed))
end
if #dues > 0 then call('ZADD', due, unpack(dues)) end
if #buried > 0 then
  local first, numbers = call('HINCRBY', META, 'buried', #buried) - #buried, {}
  for i = 1, #buried do
    numbers[2 * i - 1], numbers[2 * i] = first + i, buried[i]
  end
  call('ZADD', gone, unpack(numbers))
  local over = math.min(2 * #buried, call('ZCARD', gone) - max_clusters)
  local oldest = over > 0 and call('ZPOPMIN', gone, over) or {}
  for i = 1, #oldest, 2 do
    local other = load_numbers(oldest[i])
    if other and other[C_STATE] == GONE then call('DEL', other.key) end
  end
end
write_counters()
for i = 1, 4 do keep(KEYS[i]) end
return redis.status_reply('OK')
