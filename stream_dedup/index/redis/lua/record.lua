#!lua
-- Count the events of a commit, write its journal and raise the partition's high water: all or nothing.
-- KEYS  meta, expiry, recency, due, garbage, gone, heads, partition, journal; of a commit on many shards
--       held, preparing, prepared too; then the cluster of each delta with values
-- ARGV  incarnation, settings (see _shard.lua), partition's name, BATCH, whether the caller waits for
--       commits of others (0 or 1), journal of the batch ('' for none), deltas without values
--       (BARE_DELTA) one after the other, what left by rules that limit patterns ('' if that stays as
--       it is); then for each delta with values its DELTA, its cluster's id, representative ('' if not
--       known), samples, events chosen by chance: priority ‖ value each. No cluster has two deltas.
-- Returns {1, high water before, whether more is to be swept, garbage …} when written;
--       {0, cluster id …} naming the clusters that are closed, or were provisional and are closed now:
--       nothing was counted, but the partition holds stream time back from now on.
--       {2} if it waits for the commits that open clusters named here: nothing was counted, and what
--       is closed is named by the call that waits no longer.
--       SDFENCE: another worker has claimed the partition. SDUNCLAIMED: none has, or its key is
--       lost. SDSTRADDLE: the batch begins below the high water and ends above it. SDBARRED: the attempt of
--       a commit on many shards was given up.
--       PART_PREPARE counts nothing yet, and PART_FINISH counts what was prepared (see finish).
-- Cost  two or three commands a delta, thirty a call, and a dozen if it is one of many, four a cluster swept; some 3 microseconds a
--       bare delta, 6 one with values and 3 more a kilobyte. MAX_DELTAS of index/base.py bounds them,
--       so that other clients do not wait for long.
local reply = lost()
if reply then return reply end

local keys = {expiry = KEYS[2], recency = KEYS[3], due = KEYS[4], garbage = KEYS[5], gone = KEYS[6]}
local heads, partition, journal = KEYS[7], KEYS[8], KEYS[9]
local BATCH_FIELDS = unpack_bytes(BATCH, ARGV[4])

-- Of a commit on many shards (see _many.lua): what finishes it was checked when it was prepared.
local of_many = part ~= PART_WHOLE
local owned = call('HMGET', partition, 'fence', 'high_water', 'attempt')
if part ~= PART_FINISH then
  if not owned[1] then return redis.error_reply('SDUNCLAIMED nobody owns the partition') end
  if tonumber(owned[1]) ~= fence then return redis.error_reply('SDFENCE ' .. owned[1]) end
  local high_water = tonumber(owned[2])
  if last <= high_water then return {1, owned[2], 0} end
  if first <= high_water then return redis.error_reply('SDSTRADDLE ' .. owned[2]) end
  if of_many and not is_later(fence, attempt, owned[3]) then
    if part == PART_PREPARE and is_prepared(fence, attempt) then return {1, owned[2], 0} end
    return redis.error_reply('SDBARRED ' .. owned[3])
  end
end

-- A cluster that is provisional for another event waits for the commit of that event, or is closed:
-- at once if this partition comes first (or is the same: its former owner opened it), so that no two
-- commits wait for each other; else when the caller waits no longer, as the opener may have died.
local closed, provisional, blocked = {0}, {}, false
local own_number, own_source = string.match(ARGV[3], '^(%d+):(.*)$')
local function comes_first(c)
  local number, source = string.match(c[C_POSITION], '^(%d+):%-?%d+:(.*)$')
  if source ~= own_source then return own_source < source end
  return tonumber(own_number) <= tonumber(number)
end

local function refuse(id, c)
  if part == PART_FINISH then return end  -- lost since it was prepared, with its count
  if not (c and c[C_STATE] == OPEN) then
    closed[#closed + 1] = id
  elseif of_many and is_held(id) then  -- the commit that opens it may be decided
    blocked = true
  elseif ARGV[5] == '0' or comes_first(c) then
    closed[#closed + 1], provisional[#provisional + 1] = id, c
  else
    blocked = true
  end
end

-- Whether a periodic summary becomes due. The first event is emitted by itself: as a rule only later
-- ones count.
local function is_due(due, events, emitted)
  return due == 0 and every_us >= 0 and events > math.max(least_events, emitted)
end

-- Deltas without values: their clusters' numbers are packed here, and written once all clusters are
-- known to be open. Most deltas are bare, so the numbers stay locals: a table each would cost a third
-- more.
local CLUSTERS, LAST_NUMBER = SHARD .. 'c:', tostring(CLUSTER_BYTES - 1)
local bare_keys, bare_numbers, dues, to_keep = {}, {}, {}, {}
local counted = 0  -- events of all deltas
for at = 1, #ARGV[7], BARE_DELTA_BYTES do
  local BARE_DELTA_FIELDS = unpack_bytes(BARE_DELTA, ARGV[7], at)
  local key = CLUSTERS .. digits
  local stored = call('GETRANGE', key, '0', LAST_NUMBER)
  local open = false
  if stored ~= '' then
    local CLUSTER_FIELDS = unpack_bytes(CLUSTER, stored)
    if born == INCARNATION and state == OPEN and provisional == 0 then
      open = true
      events, bytes, counted = events + count, bytes + size, counted + count
      if earliest < first_us then first_us = earliest end
      if latest > latest_us then latest_us = latest end
      if earliest < since_us then since_us = earliest end
      if latest > last_us then last_us = latest end
      if is_due(due, events, emitted) then
        due = 1
        dues[#dues + 1] = emitted_us + every_us
        dues[#dues + 1] = id
      end
      if is_worn(renewed_s) then
        renewed_s = now_s
        to_keep[#to_keep + 1] = key
        if samples + sampled > 0 then to_keep[#to_keep + 1] = SHARD .. 'v:' .. digits end
      end
      bare_keys[#bare_keys + 1] = key
      bare_numbers[#bare_keys] = pack_bytes(CLUSTER, CLUSTER_FIELDS)
    end
  end
  if not open then refuse(id, read_cluster(id, key, call('GET', key))) end
end

local deltas, arg = {}, 9
for i = of_many and MANY_CLUSTERS_AT or 10, #KEYS do
  local DELTA_FIELDS = unpack_bytes(DELTA, ARGV[arg])
  local id = ARGV[arg + 1]
  local c = read_cluster(id, KEYS[i], call('GET', KEYS[i]))
  if c and c[C_STATE] == OPEN and (is_representative == 1 or not is_provisional(c)) then
    deltas[#deltas + 1] = {c, count, earliest, latest, size, arg + 2, samples, sampled}
  else
    refuse(id, c)
  end
  arg = arg + 3 + samples + sampled
end
-- Even if nothing can be counted: clusters that a partition further behind opens have to stay open.
if part ~= PART_FINISH then  -- whoever finishes may do so much later
  arrive(heads, ARGV[3], time_us)
  renew(heads)
end
if #closed > 1 or blocked then
  for i = 1, #provisional do close(keys, provisional[i], ENDED) end
  write_closed(keys)
  write_counters()
  for _, key in pairs(keys) do renew(key) end
  return blocked and {2} or closed
end
if part == PART_PREPARE then
  local ids = {}
  for at = BARE_DELTA_ID_AT, #ARGV[7], BARE_DELTA_BYTES do ids[#ids + 1] = sub(ARGV[7], at, at + ID_BYTES - 1) end
  for i = 1, #deltas do ids[#ids + 1] = deltas[i][1].id end
  prepare(partition, fence, attempt, ARGV[3], ids)
  return {1, owned[2], 0}
end

for i = 1, #bare_keys do call('SETRANGE', bare_keys[i], '0', bare_numbers[i]) end
for i = 1, #to_keep do renew(to_keep[i]) end

-- Of the events chosen by chance those of the least priorities stay: once there are twice as many as
-- wanted, the others go. While a summary is leased all stay, as it names some of them.
local function prune_sampled(c)
  if c[C_SAMPLED] <= 2 * max_sampled then return end
  local key = values_key(c.key)
  local fields = sampled_fields(key)
  if #fields > max_sampled then  -- else some were lost
    table.sort(fields, function(one, other)
      local a, b = unpack_bytes(ID_WORDS, one, PRIORITY_AT)
      local x, y = unpack_bytes(ID_WORDS, other, PRIORITY_AT)
      return a < x or (a == x and b < y)
    end)
    call('HDEL', key, unpack(fields, max_sampled + 1))
  end
  c[C_SAMPLED] = math.min(#fields, max_sampled)
end

for i = 1, #deltas do
  local c, count, earliest, latest, size, at, samples, sampled = unpack(deltas[i])
  local values = {}
  -- Values of an earlier window, maybe of another text, give way unless a leased summary holds them.
  if is_provisional(c) and c[C_LEASED] == 0 then
    c[C_REPRESENTATIVE], c.is_changed_text = ARGV[at], true
    if has_values(c) then call('DEL', values_key(c.key)) end
    c[C_SAMPLES], c[C_SAMPLED] = 0, 0
  end
  c[C_EVENTS], c[C_BYTES], counted = c[C_EVENTS] + count, c[C_BYTES] + size, counted + count
  c[C_PROVISIONAL] = 0
  if earliest < c[C_FIRST_US] then c[C_FIRST_US] = earliest end
  if latest > c[C_LATEST_US] then c[C_LATEST_US] = latest end
  if earliest < c[C_SINCE_US] then c[C_SINCE_US] = earliest end
  if latest > c[C_LAST_US] then c[C_LAST_US] = latest end
  local more_samples = math.max(0, math.min(samples, max_samples - c[C_SAMPLES]))
  for s = 1, more_samples do
    values[#values + 1] = c[C_SAMPLES] + s
    values[#values + 1] = ARGV[at + s]
  end
  for s = samples + 1, samples + sampled do
    values[#values + 1] = string.char(SAMPLED) .. sub(ARGV[at + s], 1, PRIORITY_BYTES)
    values[#values + 1] = sub(ARGV[at + s], PRIORITY_BYTES + 1)
  end
  if is_due(c[C_DUE], c[C_EVENTS], c[C_EMITTED]) then
    c[C_DUE] = 1
    dues[#dues + 1] = c[C_EMITTED_US] + every_us
    dues[#dues + 1] = c.id
  end
  if is_worn(c[C_RENEWED_S]) then renew_cluster(c) end
  if #values > 0 then
    local count = write_values(c, values)
    c[C_SAMPLES], c[C_SAMPLED] = c[C_SAMPLES] + more_samples, c[C_SAMPLED] + count - more_samples
    if c[C_LEASED] == 0 then prune_sampled(c) end
  end
  write_cluster(c)
end

for i = 1, #dues, 2000 do  -- Lua passes some thousand arguments at most
  call('ZADD', keys.due, unpack(dues, i, math.min(i + 1999, #dues)))
end

-- If the topic was created again after a commit was prepared, its offsets are not those of the partition any more.
if part ~= PART_FINISH or owned[3] == number_of(fence, attempt) then
  call('HSET', partition, 'high_water', string.format('%.0f', last), 'committed', string.format('%.0f', committed))
  call('ZREMRANGEBYSCORE', journal, '-inf', '(' .. string.format('%.0f', committed))
  if ARGV[6] ~= '' then call('ZADD', journal, last, ARGV[6]) end
  if ARGV[8] ~= '' then call('HSET', partition, 'kept', ARGV[8]) end
end
if part == PART_DECIDE then decide(partition, fence, attempt) elseif part == PART_FINISH then release(ARGV[3]) end

local more = sweep(keys, advance(heads), steps)
add('events', counted)
write_counters()
for _, key in pairs(keys) do renew(key) end
renew(partition)
renew(journal)
renew(META)
local answer = garbage(keys.garbage, pieces)
table.insert(answer, 1, more and 1 or 0)
table.insert(answer, 1, owned[2] or '-1')
table.insert(answer, 1, 1)
return answer
