-- Bands (see fingerprint/bands.py): how near two fingerprints are (the keys in which they differ), and two
-- sketches (what they share); and the search of the tables.
local IS_BANDS = true

-- The representative's keys, which stand before the names.
local KEYS_END = NAMES_HEAD_BYTES + BANDS * BAND_KEY_BYTES
local function fingerprint_of(c)
  return sub(c[C_NAME_LIST], NAMES_HEAD_BYTES + 1, KEYS_END)
end

-- Whether the tables lead a query to a cluster: a key that they have in common was not full when the
-- cluster was opened.
local function is_led_to(c, q)
  local in_tables = unpack_bytes(IN_TABLES, c[C_NAME_LIST], KEYS_END + 1)
  if in_tables == 2 ^ tables - 1 then return true end
  local its_fingerprint = fingerprint_of(c)
  for t = 1, tables do
    local at = (t - 1) * BAND_KEY_BYTES + 1
    local last = at + BAND_KEY_BYTES - 1
    if math.floor(in_tables / 2 ^ (tables - t)) % 2 == 1 and sub(its_fingerprint, at, last) == sub(q.fingerprint, at, last) then
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

-- What a packed sketch says first (see tables/sketches.py): how many bits of its hashes it has left out, whether
-- there are more hashes, and how many values it has.
local function head_of(sketch)
  local SKETCH_HEAD_FIELDS = unpack_bytes(SKETCH_HEAD, sketch)
  return math.floor(head / 2), head % 2 == 1, values
end

-- Read values of a sketch that has `count`: those of the bytes of its row from a place on, up to another one.
-- They follow those that were read before. `steps`: by byte, what its ones add to the first eight bits.
local VERIFYING_WORK, FIRST_BYTES = 3, 20
local steps = {}
local function read_values(values, sketch, count, from, to)
  local read = #values
  local row = {byte(sketch, SKETCH_HEAD_BYTES + count + from, SKETCH_HEAD_BYTES + count + to)}
  local lows = {byte(sketch, SKETCH_HEAD_BYTES + read + 1, SKETCH_HEAD_BYTES + count)}
  local at, first = 0, 256 * (8 * from - 8 - read)
  for i = 1, #row do
    local ones = steps[row[i]]
    if not ones then
      ones = {}
      for place = 0, 7 do
        if math.floor(row[i] / 2 ^ (7 - place)) % 2 == 1 then ones[#ones + 1] = 256 * (place - #ones) end
      end
      steps[row[i]] = ones
    end
    local count = #ones
    for j = 1, count do values[read + j] = first + ones[j] + lows[at + j] end
    read, at, first = read + count, at + count, first + 256 * (8 - count)
  end
  return values
end

-- Values without so many more bits, equal ones once.
local function coarser(values, bits)
  if bits <= 0 then return values end
  local left, divisor = {}, 2 ^ bits
  for i = 1, #values do
    local value = math.floor(values[i] / divisor)
    if value ~= left[#left] then left[#left + 1] = value end
  end
  return left
end

-- The Jaccard index of two sketches (see tables/sketches.py); 0 if it is below what two events of a
-- cluster need, which is more of those with few features. Mostly a few values show that.
local function set_of(values)
  local set = {}
  for i = 1, #values do set[values[i]] = true end
  return set
end

local function similarity_to(sketch, jaccard)
  local size, shift, is_cut, all, all_set = 0, 0, false, nil, nil
  if sketch ~= '' then
    shift, is_cut, size = head_of(sketch)
    all = read_values({}, sketch, size, 1, #sketch)
    all_set = set_of(all)
  end
  return function(other)
    if other == sketch then return 1 end
    if size == 0 or other == '' then return 0 end
    local its_shift, its_is_cut, others = head_of(other)
    local least = math.min(size, others) < FEW and math.max(jaccard, FEW_JACCARD) or jaccard
    -- Of the other only as many values are unpacked as it takes, if where it ends is of no account.
    local is_whole = its_is_cut or its_shift ~= shift
    local mine, mine_set = all, all_set
    local its = read_values({}, other, others, 1, is_whole and #other or FIRST_BYTES)
    if its_shift ~= shift then
      mine, its = coarser(all, its_shift - shift), coarser(its, shift - its_shift)
      mine_set = set_of(mine)
    end
    local reach, ours = is_cut and mine[#mine] or 65535, #mine
    if its_is_cut then reach = math.min(reach, its[#its]) end
    while ours > 0 and mine[ours] > reach do ours = ours - 1 end
    local may_miss = (others - least * ours) / (1 + least) + 1e-6
    local i, shared, missed = 1, 0, 0
    while true do
      local value = its[i]
      if not value and not is_whole then
        read_values(its, other, others, FIRST_BYTES + 1, #other)
        value, is_whole = its[i], true
      end
      if not value or value > reach then break end
      if mine_set[value] then
        shared = shared + 1
      else
        missed = missed + 1
        if missed > may_miss then return 0 end
      end
      i = i + 1
    end
    local similarity = shared / (ours + missed)
    return similarity >= least and similarity or 0
  end
end

-- A slice of a table is a string: its members one after the other, in no order. All slices of a query are
-- read at once. They are not read where the caller's mirror knows that none of the keys can be full.
local find = string.find
local READING_WORK, WRITING_WORK, BYTES_A_WORK = 3, 0.5, 16384
local NOBODY, ALL_TABLES = {}, 2 ^ tables - 1

-- The ids under the key of a table, the first CROWD of them.
local function owners_in(slice, prefix)
  local at = slice and find(slice, prefix, 1, true)
  if not at then return NOBODY end
  local ids = {}
  while at and #ids < CROWD do
    if at % member_bytes == 1 then
      ids[#ids + 1] = sub(slice, at + prefix_bytes, at + member_bytes - 1)
      at = at + member_bytes
    else
      at = at + 1  -- the end of one member and the beginning of the next
    end
    at = find(slice, prefix, at, true)
  end
  return ids
end

-- Read q.owners of each key of the tables that are wanted, given as bits, the first in the highest; others
-- are taken to have none. A key that is full gets no more members: q.in_tables, the bits of those tables that
-- will hold the query if it opens a cluster.
local function read_tables(q, wanted)
  local keys, chosen = {}, {}
  for t = 1, tables do
    if math.floor(wanted / 2 ^ (tables - t)) % 2 == 1 then
      keys[#keys + 1], chosen[t] = KEYS[q.at + t], #keys + 1
    end
  end
  local slices, owners, in_tables, bytes = call('MGET', unpack(keys)), {}, 0, 0
  for t = 1, tables do
    local slice, at = chosen[t] and slices[chosen[t]], (t - 1) * member_bytes
    local ids = owners_in(slice, sub(q.members, at + 1, at + prefix_bytes))
    local is_open = #ids < CROWD
    for i = 1, is_open and 0 or CROWD do  -- it was opened before, and is not purged yet
      if ids[i] == q.id then is_open = true end
    end
    in_tables = 2 * in_tables + (is_open and 1 or 0)
    if slice then bytes = bytes + #slice end
    owners[t] = ids
  end
  q.owners, q.in_tables = owners, in_tables
  work = work + READING_WORK + bytes / BYTES_A_WORK
end

local function entries_of_tables(q)
  local near, by_distance, shared, owners, last_table = {}, {}, {}, {}, {}
  read_tables(q, ALL_TABLES)
  for t = 1, tables do
    local ids = q.owners[t]
    for i = 1, #ids do
      local id = ids[i]
      if not shared[id] then owners[#owners + 1] = id end
      -- A member may be there twice, if its tombstone ended before it was purged and it was opened again.
      if last_table[id] ~= t then shared[id], last_table[id] = (shared[id] or 0) + 1, t end
    end
  end
  for i = 1, #owners do note(owners[i], BANDS - shared[owners[i]], near, by_distance) end
  return near, by_distance, false, surely
end

-- APPEND doubles the memory of a string that has outgrown it. So a slice that has just done so is copied by
-- BITOP, which takes as little as the allocator gives: sizes of which there are four from one power of two to
-- the next. Whether a slice of so many bytes has; small ones would save little.
local has_outgrown
do
  local OVERHEAD, LEAST_COPIED, known = 6, 512, {}
  local function allocated(bytes)
    local _, exponent = math.frexp(bytes + OVERHEAD - 1)
    local step = 2 ^ (exponent - 3)
    return math.ceil((bytes + OVERHEAD) / step) * step
  end
  has_outgrown = function(bytes)
    if known[bytes] == nil then
      known[bytes] = bytes >= LEAST_COPIED and allocated(bytes - member_bytes) < allocated(bytes)
    end
    return known[bytes]
  end
end

-- Insert a query that opens a cluster, whose names say into which tables.
local function write_members(q, _, renewed)
  local left_out, owners = 0, q.owners
  for t = 1, tables do
    if q.in_tables ~= ALL_TABLES and math.floor(q.in_tables / 2 ^ (tables - t)) % 2 == 0 then
      left_out = left_out + 1
    else
      local slice, is_there = KEYS[q.at + t], false
      for i = 1, owners and #owners[t] or 0 do is_there = is_there or owners[t][i] == q.id end
      local bytes = is_there and 0 or call('APPEND', slice, sub(q.members, (t - 1) * member_bytes + 1, t * member_bytes))
      local is_copied = has_outgrown(bytes)
      if is_copied then call('BITOP', 'OR', slice, slice) end  -- without a time to live
      if is_copied or bytes == member_bytes or not renewed then renew(slice) end
    end
  end
  work = work + tables * (renewed and WRITING_WORK or 2 * WRITING_WORK)
  if left_out > tables / 2 then add('truncated', 1) end  -- the others find it nearly as often
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
  local group = sub(q.field, LOW_GROUP_AT, GROUP_BYTES)
  for t = 1, tables do
    local at = (t - 1) * BAND_KEY_BYTES
    if unseen_keys[t][group .. sub(q.fingerprint, at + 1, at + BAND_KEY_BYTES)] then return true end
  end
  return false
end
