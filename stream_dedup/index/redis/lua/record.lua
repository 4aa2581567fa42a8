#!lua
-- Count a batch of one partition, write its journal and raise its high water: all or nothing.
-- KEYS  meta, expiry, recency, due, garbage, gone, heads, partition, journal; then the cluster of
--       each tally with values
-- ARGV  incarnation, settings (see _shard.lua), partition's name, batch (doubles: fence, first and
--       last offset, committed offset, latest event time, samples a cluster, clusters to sweep,
--       pieces of garbage to return), journal of the batch ('' for none), bare tallies one after
--       the other (count, earliest, latest time: doubles; cluster's id: 8 bytes, and as its key has
--       it: 16 hexadecimal digits, as writing them here would take long); then for each
--       tally with values its numbers (count, earliest, latest time: doubles; samples: a short;
--       1 if it settles), its cluster's id, representative ('' if not known), samples
--       No cluster has two tallies.
-- Returns {1, high water before, whether more is to be swept, garbage …} when written;
--       {0, cluster id …} naming the clusters that are closed, and nothing was counted, but the
--       partition holds stream time back from now on.
--       SDFENCE: somebody else has claimed the partition. SDUNCLAIMED: nobody has, or its key is
--       lost. SDSTRADDLE: the batch begins below the high water and ends above it.
-- Cost  two or three commands a tally, thirty a call, ten a cluster swept; some 3 microseconds a
--       bare tally, 6 one with values and 3 more a kilobyte. So no more than MAX_TALLIES of
--       index/base.py says, or others wait.
local reply = lost()
if reply then return reply end

local keys = {expiry = KEYS[2], recency = KEYS[3], due = KEYS[4], garbage = KEYS[5], gone = KEYS[6]}
local heads, partition, journal = KEYS[7], KEYS[8], KEYS[9]
local fence, first, last, committed, time_us, max_samples, steps, pieces = unpack_('<dddddddd', ARGV[4])

local owned = call('HMGET', partition, 'fence', 'high_water')
if not owned[1] then return redis.error_reply('SDUNCLAIMED nobody owns the partition') end
if tonumber(owned[1]) ~= fence then return redis.error_reply('SDFENCE ' .. owned[1]) end
local high_water = tonumber(owned[2])
if last <= high_water then return {1, owned[2], 0} end
if first <= high_water then return redis.error_reply('SDSTRADDLE ' .. owned[2]) end

local closed = {0}

-- Of a due summary: the second event and later ones are news, the first leaves by itself.
local function is_due(due, count, told)
  return due == 0 and every_us >= 0 and count > math.max(1, told)
end

-- Bare tallies: their clusters' numbers are made here, and written once all are known to be open.
-- Most tallies are bare, so theirs stay locals: a table each would cost a third more.
local BARE, BARE_BYTES, CLUSTERS = '<dddc8c16', 48, SHARD .. 'c:'
local bare_keys, bare_numbers, dues, to_keep = {}, {}, {}, {}
for at = 1, #ARGV[6], BARE_BYTES do
  local count, earliest, latest, id, digits = unpack_(BARE, ARGV[6], at)
  local key = CLUSTERS .. digits
  local stored = call('HGET', key, 'n')
  local open = false
  if stored then
    local opened_us, last_us, first_us, latest_us, events, base, told, told_us, revision, until_us, names,
      searchable, closing, due, samples, on_its_way, reopened, renewed, born, settled = unpack_(NUMBERS, stored)
    if born == INCARNATION and closing == OPEN then
      open = true
      events = events + count
      if earliest < first_us then first_us = earliest end
      if latest > latest_us then latest_us = latest end
      if latest > last_us then last_us = latest end
      if is_due(due, events, told) then
        due = 1
        dues[#dues + 1] = told_us + every_us
        dues[#dues + 1] = id
      end
      if is_worn(renewed) then
        renewed = now_s
        to_keep[#to_keep + 1] = key
      end
      bare_keys[#bare_keys + 1] = key
      bare_numbers[#bare_keys] = pack_(NUMBERS, opened_us, last_us, first_us, latest_us, events, base, told,
        told_us, revision, until_us, names, searchable, closing, due, samples, on_its_way, reopened, renewed,
        born, settled)
    end
  end
  if not open then closed[#closed + 1] = id end
end

local tallies, arg = {}, 7
for i = 10, #KEYS do
  local count, earliest, latest, samples, settles = unpack_('<dddHB', ARGV[arg])
  local id = ARGV[arg + 1]
  local stored = call('HGET', KEYS[i], 'n')
  local c = stored and numbers(stored)
  if c and c[CLOSING] == OPEN then
    c.id, c.key = id, KEYS[i]
    if settles == 1 then c[SETTLED] = 1 end
    tallies[#tallies + 1] = {c, count, earliest, latest, arg + 2, samples}
  else
    closed[#closed + 1] = id
  end
  arg = arg + 3 + samples
end
-- Also if nothing can be counted: what a partition further behind opens has to stay open.
arrive(heads, ARGV[3], time_us)
keep(heads)
if #closed > 1 then return closed end

for i = 1, #bare_keys do call('HSET', bare_keys[i], 'n', bare_numbers[i]) end
for i = 1, #to_keep do keep(to_keep[i]) end

for i = 1, #tallies do
  local c, count, earliest, latest, at, samples = unpack(tallies[i])
  local values = {}
  if ARGV[at] ~= '' then
    if c[COUNT] == 0 then
      values[1], values[2] = 'r', ARGV[at]
    else
      call('HSETNX', c.key, 'r', ARGV[at])
    end
  end
  c[COUNT] = c[COUNT] + count
  if earliest < c[FIRST] then c[FIRST] = earliest end
  if latest > c[LATEST] then c[LATEST] = latest end
  if latest > c[LAST] then c[LAST] = latest end
  for s = 1, math.min(samples, max_samples - c[SAMPLES]) do
    c[SAMPLES] = c[SAMPLES] + 1
    values[#values + 1] = c[SAMPLES]
    values[#values + 1] = ARGV[at + s]
  end
  if is_due(c[DUE], c[COUNT], c[TOLD]) then
    c[DUE] = 1
    dues[#dues + 1] = c[TOLD_US] + every_us
    dues[#dues + 1] = c.id
  end
  if is_worn(c[RENEWED]) then keep_cluster(c) end
  call('HSET', c.key, 'n', packed(c), unpack(values))
end

for i = 1, #dues, 2000 do  -- Lua hands over some thousand values at most
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
