#!lua flags=allow-oom
-- Remove the entries of closed clusters from slices and tables. Runs though the server's memory is
-- full: it frees it.
-- KEYS  meta, garbage; then for each piece its cluster; for each of the piece's names its slice
--       of exact hashes, and its slice of every table if it is in them; for each of its records its slice
-- ARGV  incarnation, bytes of a member, bytes before the names of a cluster; then for each piece the piece as it was handed out, names
--       that follow, whether they are its last (0 or 1), records that follow; for each name
--       the name, its field in a slice of exact hashes, its members; for each record its field
-- Returns nothing.
-- Cost  two commands a piece; two, and one a table (two of keys of bands), for each name; three a
--       slice of its records; two a call.
--
-- The cluster may have been opened again since: the names that it has now stay.
local call, sub = redis.call, string.sub
if call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return redis.error_reply('SDRESET the namespace was lost or created again')
end

local size, head = tonumber(ARGV[2]), tonumber(ARGV[3])
local band_keyed = head == BANDS_HEAD_BYTES
local PIECE_KEYS_AT = PIECE_BYTES + NAMES_HEAD_BYTES  -- there are no records then
local at, arg = 3, 4

-- The exact hashes, the fingerprints in the tables, and the keys of records that an open cluster has now;
-- and the keys of its bands, nil where its names hold fingerprints.
local function names_of(key, length)  -- of a name; false if none follows
  local exacts, fingerprints, records, band_keys = {}, {}, {}, nil
  local stored = call('HMGET', key, 'n', 'a', 'o')
  if stored[1] and stored[2] and string.byte(stored[1], CLUSTER_STATE_AT) == OPEN then
    if band_keyed then band_keys = sub(stored[2], NAMES_HEAD_BYTES + 1, head) end
    for i = head + 1, length and #stored[2] or 0, length or 1 do
      local name = sub(stored[2], i, i + length - 1)
      exacts[sub(name, 1, EXACT_BYTES)] = true
      if sub(name, -1) == '\1' then fingerprints[sub(name, EXACT_BYTES + 1, -1 - FLAG_BYTES)] = true end
    end
    for i = 1, #(stored[3] or ''), KEY_BYTES do records[sub(stored[3], i, i + KEY_BYTES - 1)] = true end
  end
  return exacts, fingerprints, records, band_keys
end

-- Remove the entries of a cluster from records: fields by slice.
local function leave(wanted, id)
  for slice, fields in pairs(wanted) do
    local stored, empty, changed = call('HMGET', slice, unpack(fields)), {}, {}
    for i = 1, #fields do
      local record, kept = stored[i] or '', {}
      for at = 1, #record, ENTRY_BYTES do
        local entry = sub(record, at, at + ENTRY_BYTES - 1)
        if sub(entry, -ID_BYTES) ~= id then kept[#kept + 1] = entry end
      end
      if #kept * ENTRY_BYTES < #record then
        if #kept == 0 then
          empty[#empty + 1] = fields[i]
        else
          changed[#changed + 1] = fields[i]
          changed[#changed + 1] = table.concat(kept)
        end
      end
    end
    if #empty > 0 then call('HDEL', slice, unpack(empty)) end
    if #changed > 0 then call('HSET', slice, unpack(changed)) end
  end
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

while arg <= #ARGV do
  local piece, names, last = ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  local gone = tonumber(ARGV[arg + 3])
  local id = sub(piece, 1, ID_BYTES)
  local exacts, fingerprints, records, band_keys = names_of(KEYS[at], names > 0 and #ARGV[arg + 4])
  at, arg = at + 1, arg + 4
  for _ = 1, names do
    local name, field, members = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
    if not exacts[sub(name, 1, EXACT_BYTES)] then
      local known = call('HGET', KEYS[at], field)
      if known and sub(known, 1, ID_BYTES) == id then call('HDEL', KEYS[at], field) end
    end
    at = at + 1
    local stays = fingerprints[sub(name, EXACT_BYTES + 1, -1 - FLAG_BYTES)]
    for i = 1, #members, size do
      local member, kept = sub(members, i, i + size - 1), stays
      if stays and band_keys then  -- another fingerprint may have some of the same keys
        local from, to = (i - 1) / size * BAND_KEY_BYTES + 1, (i - 1) / size * BAND_KEY_BYTES + BAND_KEY_BYTES
        kept = sub(band_keys, from, to) == sub(piece, PIECE_KEYS_AT + from, PIECE_KEYS_AT + to)
      end
      if not kept then remove(KEYS[at], member) end
      at = at + 1
    end
    arg = arg + 3
  end
  local wanted = {}
  for _ = 1, gone do
    if not records[sub(ARGV[arg], GROUP_BYTES + 1)] then
      local fields = wanted[KEYS[at]] or {}
      wanted[KEYS[at]], fields[#fields + 1] = fields, ARGV[arg]
    end
    at, arg = at + 1, arg + 1
  end
  leave(wanted, id)
  if last then call('LREM', KEYS[2], -1, piece) end
end
if call('EXISTS', KEYS[2]) == 0 then call('HDEL', KEYS[1], 'vanished') end
return redis.status_reply('OK')
