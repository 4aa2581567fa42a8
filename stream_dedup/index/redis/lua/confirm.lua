#!lua flags=allow-oom
-- Confirm summaries that were sent. Runs though the server's memory is full: it frees it.
-- KEYS  meta, due, leases, gone; then the cluster of each summary
-- ARGV  incarnation, settings (see _shard.lua); then for each its cluster's id and its revision
-- Returns nothing.
-- Cost  six commands a summary, and two a tombstone that is deleted for a newer one. Those are known
--       only here; they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, gone = KEYS[2], KEYS[3], KEYS[4]
local stream_us = number('stream') or 0

local function bury(c)
  add('waiting', -1)
  call('ZADD', gone, call('HINCRBY', META, 'buried', 1), c.id)
  call('DEL', c.key)
  c[C_STATE], c[C_UNTIL_US], c[C_NAMES], c[C_SEARCHABLE], c[C_SAMPLES], c[C_DUE] = GONE, now_us + retention_us, 0, 0, 0, 0
  call('HSET', c.key, 'n', pack_cluster(c))
  call('PEXPIRE', c.key, math.max(1, math.ceil(retention_us / 1000)))
  for _ = 1, math.min(2, call('ZCARD', gone) - max_clusters) do
    local oldest = call('ZPOPMIN', gone)[1]
    local other = load_numbers(oldest)
    if other and other[C_STATE] == GONE then call('DEL', other.key) end
  end
end

for i = 5, #KEYS do
  local arg = 2 * (i - 4) + 1
  local stored = call('HMGET', KEYS[i], 'n', 'z')
  local c = stored[1] and stored[2] and unpack_cluster(stored[1])
  if c then
    c.id, c.key = ARGV[arg], KEYS[i]
    local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, stored[2])
    if revision == tonumber(ARGV[arg + 1]) then
      call('ZREM', leases, c.id)
      call('ZREM', due, c.id)
      c[C_LEASED], c[C_DUE], c[C_EMITTED] = 0, 0, events
      if stream_us > c[C_EMITTED_US] then c[C_EMITTED_US] = stream_us end
      if c[C_STATE] ~= OPEN and state ~= OPEN and events == c[C_EVENTS] then
        bury(c)
      else
        if c[C_STATE] ~= OPEN then  -- it was closed meanwhile, or counted more events and was closed again
          call('ZADD', due, '-inf', c.id)
        elseif c[C_EVENTS] > c[C_EMITTED] and every_us >= 0 then
          c[C_DUE] = 1
          call('ZADD', due, c[C_EMITTED_US] + every_us, c.id)
        end
        call('HDEL', c.key, 'z')
        call('HSET', c.key, 'n', pack_cluster(c))
      end
    end
  end
end
write_counters()
for i = 1, 4 do keep(KEYS[i]) end
return redis.status_reply('OK')
