#!lua flags=allow-oom
-- Merge clusters that have closed, and whose final summary is claimed, into open ones whose patterns they fit
-- by words that vary together. Runs though the server's memory is full: what is closed has to be confirmed.
-- KEYS  meta; then each query's own cluster; then for each query its slice of exact hashes
-- ARGV  incarnation, settings (see _shard.lua), RULES, nothing, nothing, the queries and the keys of their
--       patterns, as for resolve.lua
-- Returns for each query, in order, the id of the cluster that goes on for its own, or zeros; fewer than were asked
--       when the budget of work was spent: ask again for the rest.
-- Cost  a command if nothing is listed for its shape; else two, some four for each combination that is tried
--       and one for each cluster that is found there; five more for one that merges.
--       The clusters that are found, and records, are known only here; they share the hash tag.
local reply = lost()
if reply then return reply end
listed_shapes = call('HGET', META, 'shapes') or ''

local loaded = {}
local function load_cluster(id, key)
  local c = loaded[id]
  if c == nil then
    key = key or key_of(id)
    c = read_cluster(id, key, call('GET', key)) or false
    loaded[id] = c
    work = work + 1
  end
  return c
end

local NOWHERE = string.rep('\0', ID_BYTES)

-- The cluster that goes on for a query's own; nil if it stays as it is.
local function merge(q)
  local c = load_cluster(q.id, q.key)
  if not c or c[C_STATE] == OPEN or c[C_SNAPSHOT] == '' then return nil end
  local SNAPSHOT_FIELDS = unpack_bytes(SNAPSHOT, c[C_SNAPSHOT])
  if state == OPEN or events ~= c[C_EVENTS] then return nil end  -- it was open then
  if state == MERGED then return into end
  local is_settled = into ~= NOWHERE
  if is_settled or c[C_GROUP] ~= q.group or c[C_LEARNED] ~= 0 or q.words == 0 then return nil end
  local looks = 0
  local root = find_fitting(q, function(entry, record)
    if loaded[entry.id] == nil then
      if looks == MAX_LOADED then return nil, true end
      looks = looks + 1
    end
    local other = load_cluster(entry.id)
    local takes = other and other[C_STATE] == OPEN and not is_provisional(other) and expires_us(other) >= q.first
    if not takes or other[C_GROUP] ~= q.group then return nil end
    -- What named it before it was opened again may not be purged yet.
    if other[C_BEFORE] ~= OPEN and not has_key(other, record.key) then return nil end
    return other
  end)
  if not root then return nil end
  count_merged(c, root)
  c[C_STATE], state, into = MERGED, MERGED, root.id
  c[C_SNAPSHOT] = pack_bytes(SNAPSHOT, SNAPSHOT_FIELDS) .. sub(c[C_SNAPSHOT], SNAPSHOT_BYTES + 1)
  write_cluster(c)
  write_cluster(root)
  work = work + 5
  return root.id
end

local queries, answers = ARGV[6], {}
local QUERY_COUNT_FIELDS = unpack_bytes(QUERY_COUNT, queries)
local byte_at, words_at = QUERY_COUNT_BYTES + 1, 1
for i = 1, count do
  if i > 1 and work >= budget then break end
  local QUERY_FIELDS, after = unpack_bytes(QUERY, queries, byte_at)
  local q = {key = KEYS[1 + i], first = first_us, id = id, field = field, group = group}
  byte_at, words_at = after, unpack_pattern(q, words_at)
  answers[i] = merge(q) or NOWHERE
end
return table.concat(answers)
