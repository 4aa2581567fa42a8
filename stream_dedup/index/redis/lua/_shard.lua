-- What all scripts share: one shard's clusters, their closing, and its stream time.
--
-- A cluster is the string c:<id>: its numbers (CLUSTER in layouts.py, which names all other layouts and
-- constants of the scripts too) and texts (CLUSTER_TEXTS), the last of which holds what most do not have
-- (RARE). Where it has samples, or events chosen by chance, they are fields of the hash v:<id>: 1, 2, 3 …,
-- and see _sampled.lua.
-- A cluster of another incarnation was left behind when meta was lost: it does not count as stored.
-- An opening counts once it is recorded: by the commit that holds the representative, which is the first
-- to count events. Until then the cluster is *provisional*, and no other commit may count there.
-- Times are microseconds, in doubles, exact to 2^53; ids, hashes and fingerprints are bytes and
-- never numbers.

local call, sub, byte, unpack_bytes, pack_bytes = redis.call, string.sub, string.byte, struct.unpack, struct.pack

local META = KEYS[1]
local SHARD = sub(META, 1, -1 - #'meta')

local function key_of(id)
  return string.format('%sc:%08x%08x', SHARD, unpack_bytes(ID_WORDS, id))
end

local function keys_of_ids(ids)
  local keys = {}
  for i = 1, #ids do keys[i] = key_of(ids[i]) end
  return keys
end

local INCARNATION = tonumber(sub(ARGV[1], 1, 8), 16)  -- eight digits are the four bytes of born

local function pack_cluster(c)
  return pack_bytes(CLUSTER, NUMBERS_OF_C)
end

local function pack_whole(c)
  local is_rare = c[C_UNTIL_US] ~= 0 or c[C_LEARNED] ~= 0 or c[C_INTO] ~= '' or c[C_MERGED] ~= '' or c[C_SNAPSHOT] ~= ''
  c[C_RARE] = is_rare and pack_bytes(RARE, RARE_NUMBERS_OF_C, RARE_TEXTS_OF_C) or ''
  return pack_bytes(WHOLE_CLUSTER, NUMBERS_OF_C, TEXTS_OF_C)
end

-- A cluster, as it is stored under a key; nil if it was left behind by data that was lost.
local function read_cluster(id, key, stored)
  local c = stored and {unpack_bytes(WHOLE_CLUSTER, stored)}
  if c and c[C_BORN] == INCARNATION then
    if c[C_RARE] == '' then RARE_OF_C = NOTHING_RARE else RARE_OF_C = unpack_bytes(RARE, c[C_RARE]) end
    c.id, c.key, c.is_changed_text = id, key, false
    return c
  end
end

-- Write what has changed: its numbers in their place, unless `is_changed_text` says that it is more.
local function write_cluster(c)
  if c.is_changed_text then
    call('SET', c.key, pack_whole(c), 'KEEPTTL')
    c.is_changed_text = false
  else
    call('SETRANGE', c.key, '0', pack_cluster(c))
  end
end

local function has_values(c)
  return c[C_SAMPLES] + c[C_SAMPLED] > 0
end

local function values_key(key)
  return SHARD .. 'v:' .. sub(key, #SHARD + #'c:' + 1)
end

local function delete_cluster(c)
  if has_values(c) then call('DEL', c.key, values_key(c.key)) else call('DEL', c.key) end
end

-- The caller's clock and settings: now_us, idle_us and so on.
local SETTINGS_FIELDS = unpack_bytes(SETTINGS, ARGV[2])

-- A caller's clock may be ahead. The server's bounds it, or partitions would be active and summaries
-- leased until the others' clocks get there; and it bounds stream time, by bound_us.
local server_time = call('TIME')
local server_us = server_time[1] * 1e6 + server_time[2]
local bound_us = server_us + max_future_us
if now_us > server_us then now_us = server_us end

local function expires_us(c)
  local idle, age = c[C_LAST_US] + idle_us, c[C_OPENED_US] + max_age_us
  return idle < age and idle or age
end

local ttl = string.format('%.0f', ttl_ms)  -- once: else the server would write the number each time
local function renew(key)
  call('PEXPIRE', key, ttl)
end

-- Renew the time to live of a cluster's own keys. The caller writes its numbers afterwards.
local now_s = math.min(math.max(math.floor(now_us / 1e6), 0), 4294967295)
local function renew_cluster(c)
  c[C_RENEWED_S] = now_s
  renew(c.key)
  if has_values(c) then renew(values_key(c.key)) end
end

local function write_tombstone(c, kept_ms)
  for i = C_FINGERPRINT, C_REPRESENTATIVE do c[i] = '' end
  for i = C_INTO, C_CHOSEN do c[i] = '' end
  call('SET', c.key, pack_whole(c), 'PX', string.format('%.0f', kept_ms))
end

-- Add values to a cluster: fields and values. How many were added.
local function write_values(c, values)
  local key, is_new = values_key(c.key), not has_values(c)
  local count = call('HSET', key, unpack(values))
  if is_new then
    if count < #values / 2 then  -- left behind by a cluster with this id whose own key was lost
      call('DEL', key)
      count = call('HSET', key, unpack(values))
    end
    renew(key)
  end
  return count
end

-- Whether half of its time to live may have gone. (The clocks of two callers may differ.)
local function is_worn(renewed_s)
  return math.abs(now_s - renewed_s) * 2000 > ttl_ms
end

-- Counters of meta, added up and written once.
local added = {}
local function add(counter, n)
  added[counter] = (added[counter] or 0) + n
end
local function write_counters()
  for counter, n in pairs(added) do
    -- An entry that was lost with its key may be subtracted twice.
    if n ~= 0 and call('HINCRBY', META, counter, n) < 0 then call('HSET', META, counter, 0) end
  end
end

-- Stream time (see clustering/windows.py, which this repeats). Nil before the first event; never beyond
-- bound_us.
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

-- A partition is active: stream time goes back to its head if that is earlier. If all others were
-- released, stream time starts again with this partition.
local function arrive(heads_key, name, time_us)
  local head = call('HGET', heads_key, name)
  if head then
    time_us = math.max(time_us, (unpack_bytes(HEAD, head)))
  elseif call('HLEN', heads_key) == 0 then
    call('HDEL', META, 'stream')
  end
  time_us = math.min(time_us, bound_us)
  call('HSET', heads_key, name, pack_bytes(HEAD, time_us, now_us) .. name)
  local stream_us = number('stream')
  if stream_us ~= nil and time_us < stream_us then write_stream(time_us) end
end

local function advance(heads_key)
  local before, seen_us = number('stream'), number('seen')
  local stream_us = before
  local heads = call('HVALS', heads_key)
  local least, most
  for i = 1, #heads do
    local head, seen, name_at = unpack_bytes(HEAD, heads[i])
    -- Seen in the future: the server's own clock was ahead.
    local active = now_us - seen <= quiet_us and seen - server_us <= quiet_us
    if active and (least == nil or head < least) then least = head end
    if most == nil or head > most then most = head end
    -- Never released, and inactive for longer than keys live: it would be read for ever.
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
  if seen_us == nil or now_us > seen_us or seen_us > server_us then
    call('HSET', META, 'seen', string.format('%.0f', now_us))
  end
  if stream_us ~= nil and stream_us > bound_us then stream_us = bound_us end
  if stream_us ~= before then write_stream(stream_us) end
  return stream_us
end

local function is_provisional(c)
  return c[C_PROVISIONAL] == 1
end

-- What is to be purged once a cluster is closed.
local function piece_of(c)
  return pack_bytes(PIECE, c.id, #c[C_POSTING_KEYS] / KEY_BYTES) .. c[C_POSTING_KEYS] .. c[C_NAME_LIST]
end

local has_vanished = false
local bury, write_buried, close, write_closed

do  -- a script has room for 200 local names
  local buried, closed_ids, closed_names, closed_dues = {}, {}, {}, {}

  -- Leave only the tombstone of a closed cluster. The caller then calls write_buried.
  function bury(c)
    buried[#buried + 1] = c.id
    if has_values(c) then call('DEL', values_key(c.key)) end
    c[C_STATE], c[C_UNTIL_US], c[C_NAMES], c[C_SEARCHABLE], c[C_DUE] = GONE, now_us + retention_us, 0, 0, 0
    c[C_SAMPLES], c[C_SAMPLED] = 0, 0
    write_tombstone(c, math.max(1, math.ceil(retention_us / 1000)))
  end

  -- Number the tombstones, and delete the oldest of too many.
  function write_buried(gone)
    if #buried == 0 then return end
    local first, numbers = call('HINCRBY', META, 'buried', #buried) - #buried, {}
    for i = 1, #buried do numbers[2 * i - 1], numbers[2 * i] = first + i, buried[i] end
    call('ZADD', gone, unpack(numbers))
    local over = math.min(2 * #buried, call('ZCARD', gone) - max_clusters)
    local oldest = over > 0 and call('ZPOPMIN', gone, over) or {}
    local forgotten, state_place = {}, tostring(CLUSTER_STATE_AT - 1)
    for i = 1, #oldest, 2 do
      local key = key_of(oldest[i])
      if call('GETRANGE', key, state_place, state_place) == string.char(GONE) then forgotten[#forgotten + 1] = key end
    end
    if #forgotten > 0 then call('DEL', unpack(forgotten)) end
    buried = {}
  end

  -- Close a cluster. Its entries in tables and slices are ignored from now on, because it is not open;
  -- its names go to the garbage list, from which the caller purges them (see purge.lua). If it is
  -- provisional, its state before it was opened returns. Where nobody reads final summaries, only its
  -- tombstone is left, unless it has merged: answers may name it. The caller then calls write_closed.
  function close(keys, c, reason)
    closed_ids[#closed_ids + 1] = c.id
    closed_names[#closed_names + 1] = piece_of(c)
    add('fingerprints', -c[C_SEARCHABLE])
    local before = c[C_BEFORE]
    if is_provisional(c) and (before == OPEN or before == GONE) then
      delete_cluster(c)
      call('HSET', META, 'vanished', 1)  -- until the garbage is purged, see purge.lua
      has_vanished = true
      if before == GONE and call('ZSCORE', keys.gone, c.id) then
        c[C_STATE], c[C_NAMES], c[C_SEARCHABLE], c[C_SAMPLES], c[C_SAMPLED] = GONE, 0, 0, 0, 0
        write_tombstone(c, math.max(1, math.ceil((c[C_UNTIL_US] - now_us) / 1000)))
      end
      return
    end
    if final_summaries == 0 and reason ~= MERGED and not is_provisional(c) and c[C_SNAPSHOT] == '' then
      if c[C_DUE] == 1 then call('ZREM', keys.due, c.id) end
      return bury(c)
    end
    c[C_STATE] = is_provisional(c) and before or reason
    if is_worn(c[C_RENEWED_S]) then renew_cluster(c) end
    write_cluster(c)
    closed_dues[#closed_dues + 1] = '-inf'
    closed_dues[#closed_dues + 1] = c.id
    add('waiting', 1)
  end

  -- Take closed clusters out of their queues: all at once, as a command costs more than what it does.
  function write_closed(keys)
    if #closed_ids == 0 then return end
    call('ZREM', keys.expiry, unpack(closed_ids))
    call('ZREM', keys.recency, unpack(closed_ids))
    call('RPUSH', keys.garbage, unpack(closed_names))
    if #closed_dues > 0 then call('ZADD', keys.due, unpack(closed_dues)) end
    write_buried(keys.gone)
    closed_ids, closed_names, closed_dues = {}, {}, {}
  end
end

-- Read clusters by their ids: f(i) returns the cluster of the i-th, or nil.
local function load_clusters(ids)
  if #ids == 0 then return end
  local keys = keys_of_ids(ids)
  local stored = call('MGET', unpack(keys))
  return function(i) return read_cluster(ids[i], keys[i], stored[i]) end
end

-- Remove an id from the queues whose cluster is not open: its key was lost, or it was closed.
local function leave(keys, id, c)
  call('ZREM', keys.expiry, id)
  -- The number of its entries was lost with the key: usually at least one.
  if call('ZREM', keys.recency, id) == 1 and c == nil then add('fingerprints', -1) end
end

-- Whether a cluster expires by its age, before it is idle for too long. Only then it is in the queue expiry
-- too: else recency finds it in time, as its score there is at most its last time.
local function expires_by_age(c)
  return c[C_OPENED_US] + max_age_us < c[C_LAST_US] + idle_us
end

-- Close clusters that stream time has passed, then the least recently seen above the cap; at most
-- `steps` clusters are read. Scores are lower bounds: an event moves its cluster's time, not the score.
-- So of as many as are too many, those whose score is exact are the least recently seen; the others
-- move back, and the next take their place.
-- Returns whether more is to be done.
local function sweep(keys, stream_us, steps)
  local left, passed_us, idle_since_us = steps, nil, nil
  if stream_us ~= nil then passed_us, idle_since_us = stream_us - 1, stream_us - 1 - idle_us end
  local function visit(id, c, is_due, reason)
    if c == nil or c[C_STATE] ~= OPEN then return leave(keys, id, c) end
    if is_due(c) then
      if reason == EVICTED or not is_provisional(c) then
        add(reason == EVICTED and 'evicted' or 'expired', 1)
      end
      return close(keys, c, reason)
    end
    call('ZADD', keys.recency, c[C_LAST_US], id)
    if expires_by_age(c) then call('ZADD', keys.expiry, expires_us(c), id) else call('ZREM', keys.expiry, id) end
  end
  local function has_passed(c) return expires_us(c) <= passed_us end
  local function close_passed(key, until_us)
    while left > 0 do
      local passed = call('ZRANGE', key, '-inf', until_us, 'BYSCORE', 'LIMIT', 0, left)
      if #passed == 0 then break end
      left = left - #passed
      local cluster = load_clusters(passed)
      for i = 1, #passed do visit(passed[i], cluster(i), has_passed, EXPIRED) end
      write_closed(keys)
    end
  end
  if stream_us ~= nil then
    close_passed(keys.expiry, passed_us)
    close_passed(keys.recency, idle_since_us)
  end
  local over = call('ZCARD', keys.recency) - max_clusters
  while over > 0 and left > 0 do
    local least = call('ZRANGE', keys.recency, 0, math.min(over, left) - 1, 'WITHSCORES')
    local ids, times_us = {}, {}
    for i = 1, #least / 2 do ids[i], times_us[i] = least[2 * i - 1], tonumber(least[2 * i]) end
    left = left - #ids
    local cluster = load_clusters(ids)
    for i = 1, #ids do
      visit(ids[i], cluster(i), function(c) return c[C_LAST_US] <= times_us[i] end, EVICTED)
    end
    write_closed(keys)
    over = call('ZCARD', keys.recency) - max_clusters
  end
  if over > 0 then return true end
  return stream_us ~= nil and left == 0
    and call('ZCOUNT', keys.expiry, '-inf', passed_us) + call('ZCOUNT', keys.recency, '-inf', idle_since_us) > 0
end

-- The next pieces of garbage. Those that were handed out before stay the first of the list until they are
-- purged, and meta counts them, so that the next caller takes others; but not for ever: a caller may have died.
local HANDED_OUT_US = 10e6
local function garbage(key, limit)
  if limit == 0 then return {} end
  local stored = call('HMGET', META, 'handed', 'handed_us')
  local handed, since_us = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
  if math.abs(server_us - since_us) > HANDED_OUT_US then handed = 0 end
  local taken = call('LRANGE', key, handed, handed + limit - 1)
  if #taken > 0 then
    if handed == 0 then since_us = server_us end
    call('HSET', META, 'handed', handed + #taken, 'handed_us', string.format('%.0f', since_us))
  end
  return taken
end
