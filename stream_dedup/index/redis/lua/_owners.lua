-- The clusters that postings name, for scripts that look at patterns but resolve nothing: merge_fitting and
-- combine. They are read once; the caller writes what it changes.

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

-- Whether a cluster takes a query's event.
local function takes_event(c, q)
  return c and c[C_STATE] == OPEN and expires_us(c) >= q.first and c[C_GROUP] == q.group
end

-- A function that returns the cluster that a posting names, if it takes a query's event, and a test
-- holds, if one is given. Of so many clusters; the others count as not looked at.
local function owners_for(q, holds)
  local looks = 0
  return function(posting, list)
    if loaded[posting.id] == nil then
      if looks == MAX_LOADED then return nil, true end
      looks = looks + 1
    end
    local c = load_cluster(posting.id)
    if not takes_event(c, q) or holds and not holds(c) then return nil end
    -- What named it before it was opened again may not be purged yet.
    if c[C_BEFORE] ~= OPEN and not has_key(c, list.key) then return nil end
    return c
  end
end

-- The queries of ARGV[6] and their patterns, one after the other; the keys of their clusters follow meta.
local function each_query(visit)
  local queries = ARGV[6]
  local QUERY_COUNT_FIELDS = unpack_bytes(QUERY_COUNT, queries)
  local byte_at, words_at = QUERY_COUNT_BYTES + 1, 1
  for i = 1, count do
    if i > 1 and work >= budget then break end
    local QUERY_FIELDS, after = unpack_bytes(QUERY, queries, byte_at)
    local q = {key = KEYS[1 + i], first = first_us, id = id, field = field, fingerprint = fingerprint, group = group}
    byte_at, words_at = after, unpack_pattern(q, words_at)
    visit(i, q)
  end
end
