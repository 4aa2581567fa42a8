#!lua flags=allow-oom
-- Remove the entries of closed clusters from slices and tables. Runs though the server's memory is
-- full: it frees it.
-- KEYS  meta, garbage; then for each piece its cluster; for each of the piece's names its slice
--       of exact hashes, and its slice of every table if it is in them; each slice that holds some
--       of its posting lists
-- ARGV  incarnation, bytes of a member, bytes before the names of a cluster; then for each piece the
--       piece as it was handed out, names that follow, whether they are its last (0 or 1), slices of
--       posting lists that follow; for each name the hash of its group with the name, its members; for
--       each of these slices the fields of the lists
-- Returns nothing.
-- Cost  a command a piece, two if its cluster is open again; two, and one a table (two of keys of
--       bands), for each name; three a slice of its posting lists; five a call, and one a piece if other
--       callers are still at pieces that were handed out before.
--
-- The cluster may have been opened again since: the names that it has now stay.
local reply = lost()
if reply then return reply end

local call, sub, byte, unpack_bytes = redis.call, string.sub, string.byte, struct.unpack

local size, head = tonumber(ARGV[2]), tonumber(ARGV[3])
local band_keyed = head == BANDS_HEAD_BYTES
local PIECE_KEYS_AT = PIECE_BYTES + NAMES_HEAD_BYTES  -- there are no posting lists then
local FIELD_BYTES = GROUP_BYTES + KEY_BYTES  -- of a posting list
local at, arg = 3, 4

-- The exact hashes, the fingerprints in the tables, and the keys of posting lists that an open cluster has now;
-- the keys of its bands, nil where its names hold fingerprints; and its group, in which alone it has these
-- names. Nothing if it is not open.
local NONE, STATE_PLACE = {}, tostring(CLUSTER_STATE_AT - 1)
local function names_of(key, length)  -- of a name; false if none follows
  -- Mostly it is closed. A script pays for every byte that it reads, so only its state is read then.
  if call('GETRANGE', key, STATE_PLACE, STATE_PLACE) ~= string.char(OPEN) then return NONE, NONE, NONE, nil, '' end
  local stored = call('GET', key)
  local exacts, fingerprints, lists, band_keys = {}, {}, {}, nil
  local c = {unpack_bytes(WHOLE_CLUSTER, stored)}
  local names, posting_keys = c[C_NAME_LIST], c[C_POSTING_KEYS]
  if band_keyed then band_keys = sub(names, NAMES_HEAD_BYTES + 1, head) end
  for i = head + 1, length and #names or 0, length or 1 do
    local name = sub(names, i, i + length - 1)
    exacts[sub(name, 1, EXACT_BYTES)] = true
    if sub(name, -1) == '\1' then fingerprints[sub(name, EXACT_BYTES + 1, -1 - FLAG_BYTES)] = true end
  end
  for i = 1, #posting_keys, KEY_BYTES do lists[sub(posting_keys, i, i + KEY_BYTES - 1)] = true end
  return exacts, fingerprints, lists, band_keys, sub(names, 1, GROUP_BYTES)
end

-- The fields of posting lists, one after the other, but for those of a group whose keys are in `kept`.
local formats = {}  -- by the number of fields
local function fields_of(packed, kept, group)
  local count = #packed / FIELD_BYTES
  if not next(kept) then
    local format = formats[count] or string.rep('c' .. FIELD_BYTES, count)
    formats[count] = format
    local fields = {unpack_bytes(format, packed)}
    fields[count + 1] = nil  -- where the next would begin
    return fields
  end
  local fields = {}
  for i = 1, #packed, FIELD_BYTES do
    local stays = kept[sub(packed, i + GROUP_BYTES, i + FIELD_BYTES - 1)] and sub(packed, i, i + GROUP_BYTES - 1) == group
    if not stays then
      fields[#fields + 1] = sub(packed, i, i + FIELD_BYTES - 1)
    end
  end
  return fields
end

-- A posting list without the postings of a cluster; nil if it has none of them, '' if it has no others.
local function without(list, id)
  if #list == POSTING_BYTES then return sub(list, POSTING_ID_AT) == id and '' or nil end
  local kept = {}
  for i = 1, #list, POSTING_BYTES do
    local posting = sub(list, i, i + POSTING_BYTES - 1)
    if sub(posting, POSTING_ID_AT) ~= id then kept[#kept + 1] = posting end
  end
  if #kept * POSTING_BYTES < #list then return table.concat(kept) end
end

-- Remove the postings of a cluster from the lists of a slice. Mostly each holds one, of the cluster.
local function leave(slice, fields, id)
  if #fields == 0 then return end
  local stored, others = call('HMGET', slice, unpack(fields)), false
  for i = 1, #fields do
    local list = stored[i]
    others = others or not list or #list ~= POSTING_BYTES or sub(list, POSTING_ID_AT) ~= id
  end
  if not others then return call('HDEL', slice, unpack(fields)) end
  local empty, changed = {}, {}
  for i = 1, #fields do
    local left = stored[i] and without(stored[i], id)
    if left == '' then
      empty[#empty + 1] = fields[i]
    elseif left then
      changed[#changed + 1] = fields[i]
      changed[#changed + 1] = left
    end
  end
  if #empty > 0 then call('HDEL', slice, unpack(empty)) end
  if #changed > 0 then call('HSET', slice, unpack(changed)) end
end

-- Remove a member from a slice: a sorted set, or of keys of bands a string of members.
local function remove(slice, member)
  if not band_keyed then return call('ZREM', slice, member) end
  local members = call('GET', slice)
  local at = members and string.find(members, member, 1, true)
  while at and at % size ~= 1 do at = string.find(members, member, at + 1, true) end
  if at and #members == size then
    call('DEL', slice)
  elseif at then
    call('SET', slice, sub(members, 1, at - 1) .. sub(members, at + size), 'KEEPTTL')
  end
end

local finished = {}
while arg <= #ARGV do
  local piece, names, last = ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  local slices = tonumber(ARGV[arg + 3])
  local id = sub(piece, 1, ID_BYTES)
  local exacts, fingerprints, lists, band_keys, group = names_of(KEYS[at], names > 0 and #ARGV[arg + 4] - GROUP_BYTES)
  at, arg = at + 1, arg + 4
  for _ = 1, names do
    local name, members = ARGV[arg], ARGV[arg + 1]
    local field = sub(name, 1, EXACT_FIELD_BYTES)
    local is_its = sub(name, 1, GROUP_BYTES) == group
    if not (is_its and exacts[sub(name, GROUP_BYTES + 1, EXACT_FIELD_BYTES)]) then
      local known = call('HGET', KEYS[at], field)
      if known and sub(known, 1, ID_BYTES) == id then call('HDEL', KEYS[at], field) end
    end
    at = at + 1
    local stays = is_its and #members > 0 and fingerprints[sub(name, EXACT_FIELD_BYTES + 1, -1 - FLAG_BYTES)]
    for i = 1, #members, size do
      local member, kept = sub(members, i, i + size - 1), stays
      if stays and band_keys then  -- another fingerprint may have some of the same keys
        local from, to = (i - 1) / size * BAND_KEY_BYTES + 1, (i - 1) / size * BAND_KEY_BYTES + BAND_KEY_BYTES
        kept = sub(band_keys, from, to) == sub(piece, PIECE_KEYS_AT + from, PIECE_KEYS_AT + to)
      end
      if not kept then remove(KEYS[at], member) end
      at = at + 1
    end
    arg = arg + 2
  end
  for _ = 1, slices do
    leave(KEYS[at], fields_of(ARGV[arg], lists, group), id)
    at, arg = at + 1, arg + 1
  end
  if last then finished[#finished + 1] = piece end
end

-- They are the first of the list, unless other callers are behind with those that were handed out before.
local function are_first()
  local found = call('LRANGE', KEYS[2], 0, #finished - 1)
  for i = 1, #finished do
    if found[i] ~= finished[i] then return false end
  end
  return true
end
if #finished > 0 then
  local removed = 0
  if are_first() then
    call('LTRIM', KEYS[2], #finished, -1)
    removed = #finished
  else
    for i = 1, #finished do removed = removed + call('LREM', KEYS[2], 1, finished[i]) end
  end
  if removed > 0 and call('HINCRBY', KEYS[1], 'handed', -removed) < 0 then call('HSET', KEYS[1], 'handed', 0) end
end
if call('EXISTS', KEYS[2]) == 0 then call('HDEL', KEYS[1], 'vanished') end
return redis.status_reply('OK')
