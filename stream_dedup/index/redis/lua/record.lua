#!lua
-- Count the events of a commit, write its journal and raise the partition's high water: all or nothing.
-- KEYS  meta, expiry, recency, due, garbage, gone, heads, partition, journal; then the cluster of
--       each delta with values
-- ARGV  incarnation, settings (see _shard.lua), partition's name, BATCH, journal of the batch ('' for
--       none), deltas without values (BARE_DELTA) one after the other; then for each delta with values
--       its DELTA, its cluster's id, representative ('' if not known), samples.
--       No cluster has two deltas.
-- Returns {1, high water before, whether more is to be swept, garbage …} when written;
--       {0, cluster id …} naming the clusters that are closed: nothing was counted, but the
--       partition holds stream time back from now on.
--       SDFENCE: another worker has claimed the partition. SDUNCLAIMED: none has, or its key is
--       lost. SDSTRADDLE: the batch begins below the high water and ends above it.
-- Cost  two or three commands a delta, thirty a call, ten a cluster swept; some 3 microseconds a
--       bare delta, 6 one with values and 3 more a kilobyte. MAX_DELTAS of index/base.py bounds them,
--       so that other clients do not wait for long.
local reply = lost()
if reply then return reply end

local keys = {expiry = KEYS[2], recency = KEYS[3], due = KEYS[4], garbage = KEYS[5], gone = KEYS[6]}
local heads, partition, journal = KEYS[7], KEYS[8], KEYS[9]
local BATCH_FIELDS = unpack_bytes(BATCH, ARGV[4])

local owned = call('HMGET', partition, 'fence', 'high_water')
if not owned[1] then return redis.error_reply('SDUNCLAIMED nobody owns the partition') end
if tonumber(owned[1]) ~= fence then return redis.error_reply('SDFENCE ' .. owned[1]) end
local high_water = tonumber(owned[2])
if last <= high_water then return {1, owned[2], 0} end
if first <= high_water then return redis.error_reply('SDSTRADDLE ' .. owned[2]) end

local closed = {0}

-- Whether a periodic summary becomes due. The first event is emitted by itself: only later ones count.
local function is_due(due, events, emitted)
  return due == 0 and every_us >= 0 and events > math.max(1, emitted)
end

-- Deltas without values: their clusters' numbers are packed here, and written once all clusters are
-- known to be open. Most deltas are bare, so the numbers stay locals: a table each would cost a third
-- more.
local CLUSTERS = SHARD .. 'c:'
local bare_keys, bare_numbers, dues, to_keep = {}, {}, {}, {}
for at = 1, #ARGV[6], BARE_DELTA_BYTES do
  local BARE_DELTA_FIELDS = unpack_bytes(BARE_DELTA, ARGV[6], at)
  local key = CLUSTERS .. digits
  local stored = call('HGET', key, 'n')
  local open = false
  if stored then
    local CLUSTER_FIELDS = unpack_bytes(CLUSTER, stored)
    if born == INCARNATION and state == OPEN then
      open = true
      events = events + count
      if earliest < first_us then first_us = earliest end
      if latest > latest_us then latest_us = latest end
      if latest > last_us then last_us = latest end
      if is_due(due, events, emitted) then
        due = 1
        dues[#dues + 1] = emitted_us + every_us
        dues[#dues + 1] = id
      end
      if is_worn(renewed_s) then
        renewed_s = now_s
        to_keep[#to_keep + 1] = key
      end
      bare_keys[#bare_keys + 1] = key
      bare_numbers[#bare_keys] = pack_bytes(CLUSTER, CLUSTER_FIELDS)
    end
  end
  if not open then closed[#closed + 1] = id end
end

local deltas, arg = {}, 7
for i = 10, #KEYS do
  local DELTA_FIELDS = unpack_bytes(DELTA, ARGV[arg])
  local id = ARGV[arg + 1]
  local stored = call('HGET', KEYS[i], 'n')
  local c = stored and unpack_cluster(stored)
  if c and c[C_STATE] == OPEN then
    c.id, c.key = id, KEYS[i]
    if is_representative == 1 then c[C_RECORDED] = 1 end
    deltas[#deltas + 1] = {c, count, earliest, latest, arg + 2, samples}
  else
    closed[#closed + 1] = id
  end
  arg = arg + 3 + samples
end
-- Even if nothing can be counted: clusters that a partition further behind opens have to stay open.
arrive(heads, ARGV[3], time_us)
keep(heads)
if #closed > 1 then return closed end

for i = 1, #bare_keys do call('HSET', bare_keys[i], 'n', bare_numbers[i]) end
for i = 1, #to_keep do keep(to_keep[i]) end

for i = 1, #deltas do
  local c, count, earliest, latest, at, samples = unpack(deltas[i])
  local values = {}
  if ARGV[at] ~= '' then
    if c[C_EVENTS] == 0 then
      values[1], values[2] = 'r', ARGV[at]
    else
      call('HSETNX', c.key, 'r', ARGV[at])
    end
  end
  c[C_EVENTS] = c[C_EVENTS] + count
  if earliest < c[C_FIRST_US] then c[C_FIRST_US] = earliest end
  if latest > c[C_LATEST_US] then c[C_LATEST_US] = latest end
  if latest > c[C_LAST_US] then c[C_LAST_US] = latest end
  for s = 1, math.min(samples, max_samples - c[C_SAMPLES]) do
    c[C_SAMPLES] = c[C_SAMPLES] + 1
    values[#values + 1] = c[C_SAMPLES]
    values[#values + 1] = ARGV[at + s]
  end
  if is_due(c[C_DUE], c[C_EVENTS], c[C_EMITTED]) then
    c[C_DUE] = 1
    dues[#dues + 1] = c[C_EMITTED_US] + every_us
    dues[#dues + 1] = c.id
  end
  if is_worn(c[C_RENEWED_S]) then keep_cluster(c) end
  call('HSET', c.key, 'n', pack_cluster(c), unpack(values))
end

for i = 1, #dues, 2000 do  -- Lua passes some thousand arguments at most
  call('ZADD', keys.due, unpack(dues, i, math.min(i + 1999, #dues)))
end

call('HSET', partition, 'high_water', string.format('%.0f', last), 'committed', string.format('%.0f', committed))
call('ZREMRANGEBYSCORE', journal, '-inf', '(' .. string.format('%.0f', committed))
if ARGV[5] ~= '' then call('ZADD', journal, last, ARGV[5]) end

local more = sweep(keys, advance(heads), steps)
write_counters()
for _, key in pairs(keys) do keep(key) end
keep(partition)
keep(journal)
keep(META)
local answer = garbage(keys.garbage, pieces)
table.insert(answer, 1, more and 1 or 0)
table.insert(answer, 1, owned[2])
table.insert(answer, 1, 1)
return answer
