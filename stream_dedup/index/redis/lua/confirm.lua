#!lua flags=allow-oom
-- Summaries were sent: settle them. Runs though the server's memory is full: it frees it.
-- KEYS  meta, due, leases, gone; then the cluster of each summary
-- ARGV  incarnation, settings (see _shard.lua); then for each its cluster's id and its revision
-- Returns nothing.
-- Cost  six commands a summary, and two a tombstone that must give way. Those are known only here;
--       they share the hash tag.
local reply = lost()
if reply then return reply end
local due, leases, gone = KEYS[2], KEYS[3], KEYS[4]
local stream_us = number('stream') or 0

local function bury(c)
  add('waiting', -1)
  call('ZADD', gone, call('HINCRBY', META, 'buried', 1), c.id)
  call('DEL', c.key)
  c[CLOSING], c[UNTIL], c[NAMES], c[SEARCHABLE], c[SAMPLES], c[DUE] = GONE, now_us + retention_us, 0, 0, 0, 0
  call('HSET', c.key, 'n', packed(c))
  call('PEXPIRE', c.key, math.max(1, math.ceil(retention_us / 1000)))
  for _ = 1, math.min(2, call('ZCARD', gone) - max_clusters) do
    local oldest = call('ZPOPMIN', gone)[1]
    local other = load_numbers(oldest)
    if other and other[CLOSING] == GONE then call('DEL', other.key) end
  end
end

for i = 5, #KEYS do
  local arg = 2 * (i - 4) + 1
  local stored = call('HMGET', KEYS[i], 'n', 'z')
  local c = stored[1] and stored[2] and numbers(stored[1])
  if c then
    c.id, c.key = ARGV[arg], KEYS[i]
    local revision, count = unpack_('<dd', stored[2])
    if revision == tonumber(ARGV[arg + 1]) then
      local final = string.byte(stored[2], 41) ~= OPEN
      call('ZREM', leases, c.id)
      call('ZREM', due, c.id)
      c[ON_ITS_WAY], c[DUE], c[TOLD] = 0, 0, count
      if stream_us > c[TOLD_US] then c[TOLD_US] = stream_us end
      if c[CLOSING] ~= OPEN and final and count == c[COUNT] then
        bury(c)
      else
        if c[CLOSING] ~= OPEN then  -- it closed, or went on and closed again, meanwhile
          call('ZADD', due, '-inf', c.id)
        elseif c[COUNT] > c[TOLD] and every_us >= 0 then
          c[DUE] = 1
          call('ZADD', due, c[TOLD_US] + every_us, c.id)
        end
        call('HDEL', c.key, 'z')
        call('HSET', c.key, 'n', packed(c))
      end
    end
  end
end
write_counters()
for i = 1, 4 do keep(KEYS[i]) end
return redis.status_reply('OK')
