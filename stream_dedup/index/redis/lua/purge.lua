#!lua flags=allow-oom
-- Take what led to closed clusters out of slices and tables. Runs though the server's memory is
-- full: it is what frees it.
-- KEYS  meta, garbage; then for each piece its cluster, and for each of the piece's entries its slice
--       of exact hashes, and its slice of every table if it stands in them
-- ARGV  incarnation, bytes of a member; then for each piece the piece as it was handed out, entries
--       that follow, whether they are its last (0 or 1), and for each entry
--       the entry (see _shard.lua, field a), group hash(4) ‖ exact hash(8), its members
-- Returns nothing.
-- Cost  two commands a piece; two, and one a table, for each entry.
--
-- A cluster may have been opened again since: what leads to it now stays.
local call, sub = redis.call, string.sub
if call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return redis.error_reply('SDRESET the namespace was lost or made anew')
end

local size = tonumber(ARGV[2])
local at, arg = 3, 3

-- The exact hashes and fingerprints by which an open cluster is to be found.
local function standing(key, length)
  local exacts, fingerprints = {}, {}
  local stored = call('HMGET', key, 'n', 'a')
  -- Behind ten doubles and two shorts stands the closing; 0 is open.
  if stored[1] and stored[2] and string.byte(stored[1], 85) == 0 then
    for i = 5, #stored[2], length do
      local entry = sub(stored[2], i, i + length - 1)
      exacts[sub(entry, 1, 8)] = true
      if sub(entry, -1) == '\1' then fingerprints[sub(entry, 9, -2)] = true end
    end
  end
  return exacts, fingerprints
end

while arg <= #ARGV do
  local piece, entries, last = ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  local id = sub(piece, 1, 8)
  local exacts, fingerprints = standing(KEYS[at], #ARGV[arg + 3])
  at, arg = at + 1, arg + 3
  for _ = 1, entries do
    local entry, field, members = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
    if not exacts[sub(entry, 1, 8)] then
      local known = call('HGET', KEYS[at], field)
      if known and sub(known, 1, 8) == id then call('HDEL', KEYS[at], field) end
    end
    at = at + 1
    local stays = fingerprints[sub(entry, 9, -2)]
    for i = 1, #members, size do
      if not stays then call('ZREM', KEYS[at], sub(members, i, i + size - 1)) end
      at = at + 1
    end
    arg = arg + 3
  end
  if last then call('LREM', KEYS[2], -1, piece) end
end
return redis.status_reply('OK')
