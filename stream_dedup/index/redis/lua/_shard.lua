-- What all scripts share: one shard's clusters, their closing, and its stream time.
--
-- A cluster is the hash c:<id>. Its field n packs the numbers below; the others are
--   f fingerprint   g group   p position   s sketch (hashes, big-endian)   r representative
--   1, 2, 3 …       samples
--   a               where events find it: group hash(4), then for each name, the representative's
--                   first: exact hash(8), fingerprint, 1 if it stands in the tables (1 byte)
--   z               the snapshot on its way (see claim.lua)
-- One of another incarnation was left behind when meta was lost: it counts as not there.
-- Times are microseconds, in doubles, exact to 2^53; ids, hashes and fingerprints are bytes and
-- never numbers.

local call, sub, byte, unpack_, pack_ = redis.call, string.sub, string.byte, struct.unpack, struct.pack

-- opened, last: what the window goes by. first, latest: times of what was recorded. base: the count
-- it was opened with. told, told_us: count and stream time of the last settled summary. until_: how
-- long (clock) its tombstone is remembered, 0 without one. names, searchable: entries of a, and
-- those in the tables. reopened: whether what led to it before may stand yet (see resolve.lua).
-- renewed: when its time to live last began, at the earliest (clock, seconds).
-- born: the first four bytes of the incarnation under which it was opened. settled: whether its
-- representative was recorded since it was opened.
local NUMBERS = '<ddddddddddHHBBBBBI4I4B'
local OPENED, LAST, FIRST, LATEST, COUNT, BASE, TOLD, TOLD_US, REVISION, UNTIL, NAMES, SEARCHABLE,
  CLOSING, DUE, SAMPLES, ON_ITS_WAY, REOPENED, RENEWED, BORN, SETTLED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
local OPEN, EXPIRED, EVICTED, ENDED, GONE = 0, 1, 2, 3, 4

local META = KEYS[1]
local SHARD = sub(META, 1, -5)  -- without 'meta'

local function key_of(id)
  return string.format('%sc:%08x%08x', SHARD, unpack_('>I4I4', id))
end

local INCARNATION = tonumber(sub(ARGV[1], 1, 8), 16)

-- Nil if the cluster was left behind by data that was lost.
local function numbers(packed)
  local c = {unpack_(NUMBERS, packed)}
  if c[BORN] == INCARNATION then return c end
end

local function packed(c)
  return pack_(NUMBERS, unpack(c, 1, 20))
end

-- The settings of who calls: the clock, then windows and summaries (every_us below 0: final ones
-- only), the time after which a key nobody writes to is gone, the cap on open clusters.
local now_us, idle_us, max_age_us, quiet_us, every_us, retention_us, lease_us, ttl_ms, max_clusters =
  unpack_('<ddddddddd', ARGV[2])

-- Whether the data is still what the caller knows; its answer ends the script.
local function lost()
  if call('HGET', META, 'incarnation') ~= ARGV[1] then
    return redis.error_reply('SDRESET the namespace was lost or made anew')
  end
end

local function expires_us(c)
  local idle, age = c[LAST] + idle_us, c[OPENED] + max_age_us
  return idle < age and idle or age
end

local ttl = string.format('%.0f', ttl_ms)  -- once: the server would write the number each time
local function keep(key)
  call('PEXPIRE', key, ttl)
end

-- The cluster's own key; its numbers are to be written afterwards.
local now_s = math.min(math.max(math.floor(now_us / 1e6), 0), 4294967295)
local function keep_cluster(c)
  c[RENEWED] = now_s
  keep(c.key)
end

-- Whether half of its time to live may have gone. (The clocks of two callers may differ.)
local function is_worn(renewed)
  return math.abs(now_s - renewed) * 2000 > ttl_ms
end

-- Counters of meta, added up and written once.
local added = {}
local function add(counter, n)
  added[counter] = (added[counter] or 0) + n
end
local function write_counters()
  for counter, n in pairs(added) do
    -- What was counted may be lost with its key, and be taken off twice.
    if n ~= 0 and call('HINCRBY', META, counter, n) < 0 then call('HSET', META, counter, 0) end
  end
end

-- Stream time (see clustering/windows.py, which this repeats). Nil before the first event.
local function number(field)
  local value = call('HGET', META, field)
  return value and tonumber(value) or nil
end

local function forward(stream_us, time_us)
  if stream_us == nil or time_us > stream_us then return time_us end
  return stream_us
end

local function write_stream(stream_us)
  if stream_us ~= nil then call('HSET', META, 'stream', string.format('%.0f', stream_us)) end
end

-- A head is the latest event time of a partition, when it was active last (clock), and its name.
local HEAD = '<dd'

-- A partition is active: stream time goes back to its head if that is earlier. The first after all
-- others were released begins anew.
local function arrive(heads_key, name, time_us)
  local head = call('HGET', heads_key, name)
  if head then
    time_us = math.max(time_us, (unpack_(HEAD, head)))
  elseif call('HLEN', heads_key) == 0 then
    call('HDEL', META, 'stream')
  end
  call('HSET', heads_key, name, pack_(HEAD, time_us, now_us) .. name)
  local stream_us = number('stream')
  if stream_us ~= nil and time_us < stream_us then write_stream(time_us) end
end

local function advance(heads_key)
  local before, seen_us = number('stream'), number('seen')
  local stream_us = before
  local heads = call('HVALS', heads_key)
  local least, most
  for i = 1, #heads do
    local head, seen, name_at = unpack_(HEAD, heads[i])
    if now_us - seen <= quiet_us and (least == nil or head < least) then least = head end
    if most == nil or head > most then most = head end
    -- Never released, and long gone: it would be looked at for ever.
    if now_us - seen > 1000 * ttl_ms then call('HDEL', heads_key, sub(heads[i], name_at)) end
  end
  if least ~= nil then
    stream_us = forward(stream_us, least)
  elseif stream_us ~= nil or most ~= nil then
    if stream_us ~= nil and seen_us ~= nil and now_us > seen_us then
      stream_us = stream_us + (now_us - seen_us)
    end
    if most ~= nil then stream_us = forward(stream_us, most) end
  end
  if seen_us == nil or now_us > seen_us then
    call('HSET', META, 'seen', string.format('%.0f', now_us))
  end
  if stream_us ~= before then write_stream(stream_us) end
  return stream_us
end

-- Closing. The cluster's entries in tables and slices are found no more, because it is not open;
-- they go to the garbage list, from which the caller purges them (see purge.lua).
local function close(keys, c, reason)
  call('ZREM', keys.expiry, c.id)
  call('ZREM', keys.recency, c.id)
  call('RPUSH', keys.garbage, c.id .. call('HGET', c.key, 'a'))
  add('fingerprints', -c[SEARCHABLE])
  if c[COUNT] == c[BASE] then  -- nobody recorded anything: what was before stays
    local remembered = c[UNTIL] > 0 and call('ZSCORE', keys.gone, c.id)
    call('DEL', c.key)
    if remembered then
      c[CLOSING], c[NAMES], c[SEARCHABLE], c[SAMPLES], c[DUE], c[ON_ITS_WAY] = GONE, 0, 0, 0, 0, 0
      call('HSET', c.key, 'n', packed(c))
      call('PEXPIRE', c.key, math.max(1, math.ceil((c[UNTIL] - now_us) / 1000)))
    end
    return
  end
  c[CLOSING] = reason
  keep_cluster(c)
  call('HSET', c.key, 'n', packed(c))
  call('ZADD', keys.due, '-inf', c.id)
  add('waiting', 1)
end

local function load_numbers(id)
  local key = key_of(id)
  local stored = call('HGET', key, 'n')
  if not stored then return nil end
  local c = numbers(stored)
  if c then c.id, c.key = id, key end
  return c
end

-- An id in the queues whose cluster is not open: its key was lost, or it was closed.
local function leave(keys, id, c)
  call('ZREM', keys.expiry, id)
  -- How many entries led to one that is lost went with it: one at least, as a rule.
  if call('ZREM', keys.recency, id) == 1 and c == nil then add('fingerprints', -1) end
end

-- Close what stream time has passed, then the least recently seen above the cap; at most `steps`
-- clusters are looked at. Scores are lower bounds: an event moves its cluster's time, not the score.
-- Returns whether more is to be done.
local function sweep(keys, stream_us, steps)
  local left = steps
  local function head(key, id, score_of, is_due, reason)
    local c = load_numbers(id)
    if c == nil or c[CLOSING] ~= OPEN then return leave(keys, id, c) end
    local score = score_of(c)
    if is_due(score) then
      if reason == EVICTED or c[COUNT] > c[BASE] then
        add(reason == EVICTED and 'evicted' or 'expired', 1)
      end
      close(keys, c, reason)
    else
      call('ZADD', key, score, id)
    end
  end
  while stream_us ~= nil and left > 0 do
    local passed = call('ZRANGE', keys.expiry, '-inf', stream_us - 1, 'BYSCORE', 'LIMIT', 0, left)
    if #passed == 0 then break end
    left = left - #passed
    for i = 1, #passed do
      head(keys.expiry, passed[i], expires_us, function(score) return score <= stream_us - 1 end, EXPIRED)
    end
  end
  local over = call('ZCARD', keys.recency) - max_clusters
  while over > 0 and left > 0 do
    left = left - 1
    local least = call('ZRANGE', keys.recency, 0, 0, 'WITHSCORES')
    local seen = tonumber(least[2])
    head(keys.recency, least[1], function(c) return c[LAST] end, function(score) return score <= seen end, EVICTED)
    over = call('ZCARD', keys.recency) - max_clusters
  end
  if over > 0 then return true end
  return stream_us ~= nil and left == 0 and call('ZCOUNT', keys.expiry, '-inf', stream_us - 1) > 0
end

-- The next pieces of garbage, each handed to the back so that the next caller takes others.
local function garbage(key, limit)
  local taken = {}
  for i = 1, math.min(limit, call('LLEN', key)) do
    taken[i] = call('LMOVE', key, key, 'LEFT', 'RIGHT')
  end
  return taken
end
