-- Bands (see fingerprint/bands.py): how near two fingerprints are (the keys in which they differ), and two
-- sketches (what they share); and the search of the tables.
local IS_BANDS, LOADED_FIELDS = true, {'n', 'g', 's'}

-- The representative's keys, which stand before the names. They are read only of clusters that a query
-- joins, not of all with which it is compared.
local function fingerprint_of(c)
  if not c.fingerprint then
    c.read_names = call('HGET', c.key, 'a') or ''
    local last = NAMES_HEAD_BYTES + BANDS * BAND_KEY_BYTES
    c.fingerprint = sub(c.read_names, NAMES_HEAD_BYTES + 1, last)
    c.in_tables = c.fingerprint ~= '' and unpack_bytes(IN_TABLES, c.read_names, last + 1) or 0
    work = work + 1
  end
  return c.fingerprint
end

-- Whether the tables lead a query to a cluster: a key that they have in common was not full when the
-- cluster was opened.
local function is_led_to(c, q)
  if c.in_tables == 2 ^ tables - 1 then return true end
  for t = 1, tables do
    local at = (t - 1) * BAND_KEY_BYTES + 1
    local last = at + BAND_KEY_BYTES - 1
    if math.floor(c.in_tables / 2 ^ (tables - t)) % 2 == 1 and sub(c.fingerprint, at, last) == sub(q.fingerprint, at, last) then
      return true
    end
  end
  return false
end

local function names_with_keys(q)
  return sub(q.field, 1, GROUP_BYTES) .. q.fingerprint .. pack_bytes(IN_TABLES, q.in_tables) ..
    sub(q.field, GROUP_BYTES + 1) .. (q.near and '\1' or '\0')
end

local ALL_KEYS = '>' .. string.rep('I' .. BAND_KEY_BYTES, BANDS)
local function distances()
  return function(one)
    local mine = {unpack_bytes(ALL_KEYS, one)}
    return function(other)
      if other == one then return 0 end
      local keys, distance = {unpack_bytes(ALL_KEYS, other)}, 0
      for i = 1, BANDS do
        if keys[i] ~= mine[i] then distance = distance + 1 end
      end
      return distance
    end
  end
end

-- The hashes of a sketch, and behind them a number that is greater than all.
local VERIFYING_WORK, NO_HASH = 3, 4294967296
local FIRST_HASHES = 32
local hash_formats = {}
local function hashes_of(sketch, from, count)
  hash_formats[count] = hash_formats[count] or '>' .. string.rep('I' .. BAND_HASH_BYTES, count)
  local hashes = {unpack_bytes(hash_formats[count], sketch, from * BAND_HASH_BYTES + 1)}
  hashes[count + 1] = nil
  return hashes
end

-- The Jaccard index of two sketches (see clustering/linkage.py); 0 if it is below what two events of a
-- cluster need, which is more of those with few features. Mostly a few hashes show that.
local function similarity_to(sketch, jaccard)
  local size = #sketch / BAND_HASH_BYTES
  local mine = hashes_of(sketch, 0, size)
  mine[size + 1] = NO_HASH
  return function(other)
    if other == sketch then return 1 end
    local others = #other / BAND_HASH_BYTES
    local both = size + others
    local least = math.min(size, others) < FEW and math.max(jaccard, FEW_JACCARD) or jaccard
    -- Where one may have been cut off, the least hashes of both together are the sample.
    local sampled, may_miss = both, both * (1 - least) / (1 + least)
    if size >= BAND_SKETCH or others >= BAND_SKETCH then
      sampled, may_miss = BAND_SKETCH, BAND_SKETCH * (1 - least)
    end
    may_miss = may_miss + 1e-6
    -- Of the other only as many hashes are unpacked as it takes.
    local its, before_its = hashes_of(other, 0, math.min(others, FIRST_HASHES)), 0
    local i, j, shared, missed = 1, 1, 0, 0
    local a, b = mine[1], its[1] or NO_HASH
    while shared + missed < sampled do
      local same, ours = a == b, a <= b
      if same then
        if a == NO_HASH then break end
        shared = shared + 1
      else
        missed = missed + 1
        if missed > may_miss then return 0 end
      end
      if ours then
        i = i + 1
        a = mine[i]
      end
      if same or not ours then
        j = j + 1
        b = its[j]
        if not b then
          before_its = before_its + j - 1
          its, j = hashes_of(other, before_its, others - before_its), 1
          b = its[1] or NO_HASH
        end
      end
    end
    local similarity = shared / (shared + missed)
    return similarity >= least and similarity or 0
  end
end

local MEMBER_WORK = 0.1
local LAST_ID = string.rep('\255', ID_BYTES)
local MOST_MEMBERS = string.format('%d', CROWD)
local function members_of(q, t)
  local at = (t - 1) * member_bytes
  local prefix = '[' .. sub(q.members, at + 1, at + prefix_bytes)
  local found = call('ZRANGE', KEYS[q.at + t], prefix, prefix .. LAST_ID, 'BYLEX', 'LIMIT', '0', MOST_MEMBERS)
  work = work + 1 + #found * MEMBER_WORK
  return found
end

-- The owners of each key. A key that is full gets no more members: q.full, by table, and q.in_tables, the
-- bits of those tables that will hold the query if it opens a cluster.
local function entries_of_tables(q)
  local near, by_distance, shared, owners, bits = {}, {}, {}, {}, 0
  q.full = {}
  for t = 1, tables do
    local found = members_of(q, t)
    local count = #found
    bits = bits * 2
    if count < CROWD then bits = bits + 1 else q.full[t] = true end
    for i = 1, count do
      local id = sub(found[i], -ID_BYTES)
      if not shared[id] then owners[#owners + 1] = id end
      shared[id] = (shared[id] or 0) + 1
    end
  end
  q.in_tables = bits
  for i = 1, #owners do note(owners[i], BANDS - shared[owners[i]], near, by_distance) end
  return near, by_distance, false, surely
end

-- Of the tables that may be full, as the caller's mirror says, find those that are.
local function count_crowds(q)
  q.full = {}
  for t = 1, tables do
    local bit = 2 ^ (tables - t)
    if math.floor(q.crowds / bit) % 2 == 1 then
      if #members_of(q, t) >= CROWD then
        q.full[t], q.in_tables = true, q.in_tables - bit
      end
    end
  end
end

-- Whether a query shares a key with entries that the caller has not seen.
local unseen_keys
local function shares_unseen_key(q, calls, entry_bytes)
  if not unseen_keys then
    unseen_keys = {}
    for t = 1, tables do unseen_keys[t] = {} end
    for i = 1, #calls do
      for at = INSERTING_CALL_BYTES + 1, #calls[i], entry_bytes do
        local group, key_at = sub(calls[i], at, at + LOW_GROUP_BYTES - 1), at + LOW_GROUP_BYTES
        for t = 1, tables do
          unseen_keys[t][group .. sub(calls[i], key_at, key_at + BAND_KEY_BYTES - 1)] = true
          key_at = key_at + BAND_KEY_BYTES
        end
        work = work + 1
      end
    end
  end
  work = work + 1
  for t = 1, tables do
    local at = (t - 1) * member_bytes
    if unseen_keys[t][sub(q.members, at + 1, at + prefix_bytes)] then return true end
  end
  return false
end
