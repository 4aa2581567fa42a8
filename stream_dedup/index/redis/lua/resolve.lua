#!lua
-- Find or open a cluster for each query, in order, each seeing those before it.
-- KEYS  meta, expiry, recency, due, garbage, inserted; then each query's own cluster; then for each
--       query its slice of exact hashes, and its slice of every table (none when it is not to be
--       matched by fingerprint)
-- ARGV  incarnation, settings (see _shard.lua), rules, a random name of this call (8 bytes), what the
--       caller has seen ('' if it keeps no mirror, see mirror.py): the name of the call up to which
--       it knows all that was inserted (zeros: nothing was), then the names of its own calls on
--       their way; then the queries: how many there are (4 bytes), and of each its times (first, last:
--       microseconds, doubles), its own id(8), group hash(4) ‖ exact hash(8), and, each behind its
--       length (4 bytes), fingerprint, sketch, group, position, its members of all tables one after
--       the other, what the caller's mirror holds near it: id(8) ‖ fingerprint each, or '?' if that is
--       not known. All of it big-endian (see tables/entries.py)
-- Returns {what was decided, where this shard stands, calls that the caller has not seen …}.
--       Decided: 26 bytes a query: id(8), opened, last (doubles, big-endian), distance, and flags
--       (bytes): 1 new, 2 settled, 4 its fingerprint was inserted.
--       Fewer than were asked when the budget of work was spent: ask again for the rest.
--       Where it stands: 1 if what the caller has seen is known here (1 byte), number of the last call
--       that inserted, entries in the tables (doubles), name of that call.
--       A call: its name(8), number (double), and what it inserted: group hash(2), fingerprint, id(8)
--       each.
--       SDWAITING if the first of them needs a new cluster while too many closed ones (their number
--       follows) wait for their final summary.
-- Cost  a query known by its exact hash 3 commands, else one a near cluster, and one a table if they
--       are to be searched; one that opens a cluster 5 and one a table, or two if slices are to be kept.
--       Twenty a call.
local reply = lost()
if reply then return reply end

local k, jaccard, max_names, max_candidates, max_verified, prefix_bytes, member_bytes, tables,
  budget = unpack_('<ddddddddd', ARGV[3])
local expiry, recency, due, garbage_key, inserted_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local verifies = jaccard > 0
local AFTER = string.rep('\255', 32)

-- Of a member: where the bits stand that its prefix does not tell.
local rest_at, rest_bytes = prefix_bytes + 1, member_bytes - 8 - prefix_bytes
if rest_bytes == 0 then rest_at, rest_bytes = prefix_bytes, 1 end  -- all that differ have other prefixes
local first_bytes = '>I' .. math.min(rest_bytes, 3)
local rest_from = distances(rest_bytes, rest_at)
local full_from  -- made with the first fingerprint

local work = 0

-- What was inserted since the caller has looked, by others than itself: a query is held against each
-- of it, unless that is so much that the tables are searched instead.
local CALLS_KEPT, MOST_UNSEEN = 256, 256
local NOTHING_YET = string.rep('\0', 8)
local name_of_call, seen = ARGV[4], ARGV[5]
local standing = call('HMGET', META, 'inserted', 'turn', 'fingerprints', 'kept', 'kept_for')
local last_call, turn = standing[1] or NOTHING_YET, tonumber(standing[2] or 0)
local unseen, unseen_entries, is_known = {}, 0, false
local entry_bytes  -- of what was inserted, known with the first query

-- Whether all calls since the one that the caller knows are among the last so many. Their numbers
-- follow one upon the other: one that failed in its middle has taken a number and told of nothing.
local function reaches_back(depth)
  local own, base = {}, sub(seen, 1, 8)
  for at = 9, #seen, 8 do own[sub(seen, at, at + 7)] = true end
  local calls = call('LRANGE', inserted_key, -depth, -1)
  unseen = {}
  for i = #calls, 1, -1 do
    local its_name, its_turn = unpack_('<c8d', calls[i])
    if its_turn ~= turn - (#calls - i) then return false end
    if its_name == base then return true end
    if not own[its_name] then unseen[#unseen + 1] = calls[i] end
  end
  return base == NOTHING_YET and turn == #calls
end

local function look_back(fingerprint_bytes)
  entry_bytes = 2 + fingerprint_bytes + 8
  if seen == '' then return end
  is_known = sub(seen, 1, 8) == last_call or reaches_back(8) or reaches_back(CALLS_KEPT)
  if not is_known then unseen = {} end
  for i = 1, #unseen do unseen_entries = unseen_entries + (#unseen[i] - 16) / entry_bytes end
end

-- Whether one of them is near to a query.
local function is_near_unseen(q)
  if unseen_entries == 0 then return false end
  local from, group = nil, sub(q.field, 3, 4)
  work = work + unseen_entries * 0.2
  for i = 1, #unseen do
    for at = 17, #unseen[i], entry_bytes do
      if sub(unseen[i], at, at + 1) == group then
        from = from or full_from(q.fingerprint)
        if from(sub(unseen[i], at + 2, at + entry_bytes - 9)) <= k then return true end
      end
    end
  end
  return false
end

local inserted = {}
local states, dirty, opened = {}, {}, {}

local function state(id, key)
  local c = states[id]
  if c == nil then
    work = work + 1
    key = key or key_of(id)
    local stored = call('HMGET', key, 'n', 'f', 'g', 's')
    c = stored[1] and numbers(stored[1])
    if c then
      c.id, c.key, c.fingerprint, c.group, c.sketch = id, key, stored[2], stored[3], stored[4]
    else
      if stored[1] then call('DEL', key) end  -- left behind by data that was lost
      c = false
    end
    states[id] = c
  end
  return c
end

local function takes(c, q)
  return c and c[CLOSING] == OPEN and expires_us(c) >= q.first
end

local function join(c, q)
  if q.last > c[LAST] then
    c[LAST] = q.last
    dirty[c.id] = c
  end
  return c
end

-- Whether a cluster has a name for which a test holds.
local function has_name(c, holds)
  local names = call('HGET', c.key, 'a')
  work = work + 1
  local size = 9 + #c.fingerprint
  for at = 5, #names, size do
    if holds(sub(names, at, at + 7), sub(names, at + 8, at + size - 2), byte(names, at + size - 1) == 1) then
      return true
    end
  end
  return false
end

-- One that was opened again may be found by what led to it before and is not purged yet.
local function is_named(c, q)
  return c[REOPENED] == 0 or has_name(c, function(exact) return exact == sub(q.field, 5) end)
end

local function reaches(c, q)
  if c[REOPENED] == 0 then return true end
  local from = full_from(q.fingerprint)
  return has_name(c, function(_, fingerprint, searchable) return searchable and from(fingerprint) <= k end)
end

local function older(one, other)
  if one[OPENED] ~= other[OPENED] then return one[OPENED] < other[OPENED] end
  return before(one.id, other.id)
end

-- Which live clusters of the group stand within k bits: all of them, unless there are too many; then
-- those with the nearest entries, of equally near ones the oldest, and whether some were left out.
-- Looking a cluster up costs a command, so they are looked up nearest entry first, and only twice as
-- many live ones as are kept, or four times as many in all: of more, the oldest of those looked up
-- are kept. If nothing was found out of those that were not looked up, they count as left out.
local function live_of(near, by_distance, q, still_leads)
  local live, looked = {}, 0
  for distance = 0, k do
    local ids, nearer = by_distance[distance] or {}, #live
    for i = 1, #ids do
      local id = ids[i]
      if near[id] == distance then  -- else another of its entries is nearer
        if #live == 2 * max_verified or looked == 4 * max_verified then break end
        looked = looked + 1
        local c = state(id)
        if takes(c, q) and c.group == q.group and reaches(c, q) and still_leads(c) then live[#live + 1] = c end
      end
    end
    if #live > max_verified then
      local same = {}
      for i = nearer + 1, #live do
        same[i - nearer], live[i] = live[i], nil
      end
      table.sort(same, older)
      for i = nearer + 1, max_verified do live[i] = same[i - nearer] end
      return live, true
    end
    if looked == 4 * max_verified then return live, true end
  end
  return live, false
end

-- A whole number that is not below one, as text; few texts, as writing them takes time.
local texts = {}
local function at_least(n)
  local step = math.ceil(n / 128)
  if not texts[step] then texts[step] = string.format('%d', step * 128) end
  return texts[step]
end

-- Entries within k bits of a query: least distances by their clusters, and clusters by distance.
local function note(id, distance, near, by_distance)
  local nearest = near[id]
  if distance <= k and (nearest == nil or distance < nearest) then
    near[id] = distance
    local ids = by_distance[distance]
    if ids then ids[#ids + 1] = id else by_distance[distance] = {id} end
  end
end

local function surely() return true end

local function entries_of_tables(q)
  local near, by_distance = {}, {}
  local left, truncated = max_candidates, false
  for t = 1, tables do
    local member = sub(q.members, (t - 1) * member_bytes + 1, t * member_bytes)
    local prefix = '[' .. sub(member, 1, prefix_bytes)
    local found = call('ZRANGE', KEYS[q.at + t], prefix, prefix .. AFTER, 'BYLEX', 'LIMIT', '0',
      at_least(left + 1))
    local count, from = #found, nil
    if count > left then count, truncated = left, true end
    left = left - count
    local mine = count > 0 and unpack_(first_bytes, member, rest_at)
    for i = 1, count do
      -- Most are far in the first bytes; this runs most often of all, so it calls little.
      local x = bxor(mine, (unpack_(first_bytes, found[i], rest_at)))
      local a = x % 256
      x = (x - a) / 256
      local b = x % 256
      if BITS[a] + BITS[b] + BITS[(x - b) / 256] <= k then
        from = from or rest_from(member)
        note(sub(found[i], -8), from(found[i]), near, by_distance)
      end
    end
    if left == 0 then  -- what other tables hold is not known: it counts as left out
      truncated = truncated or t < tables
      break
    end
  end
  work = work + tables + (max_candidates - left) * 0.3
  return near, by_distance, truncated, surely
end

-- Also whether one of them stands yet: it may be of another cluster that had the same id.
local function entries_of_mirror(q)
  local near, by_distance, fingerprints = {}, {}, {}
  local from, length = full_from(q.fingerprint), #q.fingerprint
  for at = 1, #q.mirrored, 8 + length do
    local id, fingerprint = sub(q.mirrored, at, at + 7), sub(q.mirrored, at + 8, at + 7 + length)
    note(id, from(fingerprint), near, by_distance)
    fingerprints[id] = fingerprints[id] or {}
    table.insert(fingerprints[id], fingerprint)
  end
  local function still_leads(c)
    local names = call('HGET', c.key, 'a')
    work = work + 1
    for _, fingerprint in ipairs(fingerprints[c.id]) do
      local entry = fingerprint .. '\1'
      local at = string.find(names, entry, 13, true)
      while at and (at - 13) % (9 + length) ~= 0 do at = string.find(names, entry, at + 1, true) end
      if at then return true end
    end
    return false
  end
  return near, by_distance, false, still_leads
end

local function search(q)
  local mirrored = is_known and unseen_entries <= MOST_UNSEEN and q.mirrored ~= '?' and not is_near_unseen(q)
  if mirrored and q.mirrored == '' then return nil end
  local near, by_distance, truncated, still_leads =
    (mirrored and entries_of_mirror or entries_of_tables)(q)
  local live, crowded = live_of(near, by_distance, q, still_leads)
  if truncated or crowded then add('truncated', 1) end
  local best, best_similarity, best_distance
  local from, like
  for i = 1, #live do
    local c = live[i]
    from = from or full_from(q.fingerprint)
    local distance, similarity, admitted = from(c.fingerprint), 0, nil
    if verifies then
      like = like or similarity_to(q.sketch)
      similarity = like(c.sketch)
      admitted = similarity >= jaccard
      work = work + 0.5
    else
      admitted = distance <= k
    end
    if admitted then
      local better = best == nil or similarity > best_similarity
      if not better and similarity == best_similarity then
        better = distance < best_distance
        if not better and distance == best_distance then
          better = c[OPENED] < best[OPENED] or (c[OPENED] == best[OPENED] and before(c.id, best.id))
        end
      end
      if better then best, best_similarity, best_distance = c, similarity, distance end
    end
  end
  return best, best_distance
end

-- The slices of a query that are about to be written, of exact hashes and, if `searchable`, of tables.
-- Those that stand have half of their time to live at least, if a round has begun them all anew since
-- (see upkeep.py). So they are kept only where that is not known, or one of them is made just now.
local all_kept = standing[4] and not is_worn(tonumber(standing[4])) and standing[5] == ttl
local function stands(q, searchable)
  local last = q.at + (searchable and tables or 0)
  return all_kept and call('EXISTS', unpack(KEYS, q.at, last)) == last - q.at + 1
end

local members_format = string.rep('c' .. member_bytes, tables)
local function insert(q, id, stood)
  if #inserted == 0 then  -- before anything can fail
    last_call, turn = name_of_call, turn + 1
    call('HSET', META, 'inserted', last_call, 'turn', string.format('%.0f', turn))
  end
  local members = {unpack_(members_format, q.members)}
  for t = 1, tables do
    local member, slice = members[t], KEYS[q.at + t]
    if id ~= q.id then member = sub(member, 1, -9) .. id end
    call('ZADD', slice, '0', member)
    if not stood then keep(slice) end
  end
  work = work + tables * (stood and 0.9 or 1.2)
  inserted[#inserted + 1] = sub(q.field, 3, 4) .. q.fingerprint .. id
  q.inserted = true
  add('fingerprints', 1)
end

-- Make the query's exact hash lead to a cluster, and its fingerprint if it is `searchable`.
local function lead(q, id, distance, searchable)
  local stood = stands(q, searchable)
  call('HSET', KEYS[q.at], q.field, id .. string.char(distance))
  if not stood then keep(KEYS[q.at]) end
  if searchable then insert(q, id, stood) end
end

-- Make the query's exact hash and fingerprint lead to the cluster.
local function add_alias(q, c, distance)
  if c[NAMES] > max_names then return end
  -- Without verification its fingerprint could lead to nothing the representative's does not.
  local searchable = verifies and distance > 0
  lead(q, c.id, distance, searchable)
  if searchable then c[SEARCHABLE] = c[SEARCHABLE] + 1 end
  c[NAMES] = c[NAMES] + 1
  dirty[c.id] = c
  call('HSET', c.key, 'a', call('HGET', c.key, 'a') .. sub(q.field, 5) .. q.fingerprint ..
    (searchable and '\1' or '\0'))
  work = work + 4
end

-- Too many closed clusters that nobody claims (see `max_waiting` of index/base.py).
local waiting_before
local function waiting()
  waiting_before = waiting_before or number('waiting') or 0
  return waiting_before + (added.waiting or 0)
end

-- A cluster that stands under the query's id is opened again, with count and revision going on: its
-- window has passed, its final summary waits, or another text stood at that position before.
local function open(q, standing)
  if #opened == 0 then  -- fails before anything is written, if they are no queues
    call('ZCARD', expiry)
    call('ZCARD', recency)
  end
  local c
  if standing and standing[CLOSING] ~= GONE then
    c = standing
    c[REOPENED], c[SETTLED] = 1, 0
    if c[CLOSING] == OPEN then  -- closed first
      call('RPUSH', garbage_key, c.id .. call('HGET', c.key, 'a'))
      add('fingerprints', -c[SEARCHABLE])
    else  -- its final summary waits
      add('waiting', -1)
      if c[DUE] == 1 then
        call('ZADD', due, c[TOLD_US] + every_us, c.id)
      else
        call('ZREM', due, c.id)
      end
    end
    -- What is kept of another text goes, unless a summary that tells of it is on its way.
    if c.fingerprint ~= q.fingerprint and c[ON_ITS_WAY] == 0 then
      local kept = {'r'}
      for s = 1, c[SAMPLES] do kept[s + 1] = s end
      call('HDEL', c.key, unpack(kept))
      c[SAMPLES] = 0
    end
  else
    if waiting() > math.max(1000, max_clusters) then return nil end
    c = {q.first, q.last, q.first, q.first, 0, 0, 0, q.first, 0, 0, 0, 0, OPEN, 0, 0, 0, 0, now_s,
      INCARNATION, 0, id = q.id, key = q.key, fingerprint = '', group = '', sketch = ''}
    if standing and standing[UNTIL] >= now_us then  -- it was delivered again late
      c[REVISION], c[COUNT], c[UNTIL] = standing[REVISION], standing[COUNT], standing[UNTIL]
      c[TOLD], c[BASE] = c[COUNT], c[COUNT]
    end
  end
  c[OPENED], c[LAST], c[CLOSING], c[NAMES], c[SEARCHABLE] = q.first, q.last, OPEN, 1, q.near and 1 or 0
  c.fingerprint, c.group, c.sketch = q.fingerprint, q.group, q.sketch
  c[RENEWED] = now_s
  call('HSET', c.key, 'n', packed(c), 'f', q.fingerprint, 'g', q.group, 'p', q.position, 's', q.sketch,
    'a', q.field .. q.fingerprint .. (q.near and '\1' or '\0'))
  keep(c.key)
  states[c.id], dirty[c.id] = c, nil
  opened[#opened + 1] = c
  lead(q, c.id, 0, q.near)
  work = work + 3
  return c
end

local none_stood = false  -- of the clusters that the queries would open, before the call
local function resolve(q)
  local own = states[q.id]
  if own == nil and not none_stood then own = state(q.id, q.key) end
  if takes(own, q) and own.fingerprint == q.fingerprint then
    return join(own, q), 0  -- it has opened it before; others may be as near
  end
  work = work + 1
  local known = call('HGET', KEYS[q.at], q.field)
  if known then
    local c = state(sub(known, 1, 8))
    if takes(c, q) and c.group == q.group and is_named(c, q) then return join(c, q), byte(known, 9) end
  end
  if q.near then
    local c, distance = search(q)
    if c then
      add_alias(q, c, distance)
      return join(c, q), distance
    end
  end
  return open(q, own), 0
end

-- Into the queues goes all at once at the end: nothing here reads them. (A call opens fewer than would
-- be more values than Lua can hand over.)
local function queue()
  if #opened == 0 then return end
  local expiries, recencies = {}, {}
  for i = 1, #opened do
    local c = opened[i]
    expiries[2 * i - 1], expiries[2 * i] = expires_us(c), c.id
    recencies[2 * i - 1], recencies[2 * i] = c[LAST], c.id
  end
  call('ZADD', expiry, unpack(expiries))
  call('ZADD', recency, unpack(recencies))
  for i = 1, 4 do keep(KEYS[i]) end
end

local answers, refused = {}, false
local QUERY = '>ddc8c12' .. string.rep('I4c0', 6)
local queries = ARGV[6]
local count = unpack_('>I4', queries)

local function resolve_all()
  none_stood = call('EXISTS', unpack(KEYS, 7, 6 + count)) == 0
  local at, byte_at = 7 + count, 5
  for i = 1, count do
    if i > 1 and work >= budget then break end
    local first, last, id, field, fingerprint, sketch, group, position, members, mirrored, after =
      unpack_(QUERY, queries, byte_at)
    byte_at = after
    -- All its fields from the start: a table that grows by each costs more than what it holds.
    local q = {at = at, key = KEYS[6 + i], first = first, last = last, id = id, field = field,
      fingerprint = fingerprint, sketch = sketch, group = group, position = position, members = members,
      mirrored = mirrored, near = #members > 0, inserted = false}
    if not full_from then
      full_from = distances(#fingerprint, 1)
      look_back(#fingerprint)
    end
    local c, distance = resolve(q)
    if not c then
      refused = i == 1
      break
    end
    answers[i] = pack_('>c8ddBB', c.id, c[OPENED], c[LAST], distance,
      (c.id == id and 1 or 0) + 2 * c[SETTLED] + (q.inserted and 4 or 0))
    at = at + 1 + (q.near and tables or 0)
  end
end

local done, problem = pcall(resolve_all)
queue()  -- what was opened is to be closed one day, even if another key was not what it should be
if not done then error(problem, 0) end

for _, c in pairs(dirty) do call('HSET', c.key, 'n', packed(c)) end
if #inserted > 0 then
  call('RPUSH', inserted_key, last_call .. pack_('<d', turn) .. table.concat(inserted))
  call('LTRIM', inserted_key, -CALLS_KEPT, -1)
  keep(inserted_key)
end
if call('EXISTS', garbage_key) == 1 then keep(garbage_key) end
write_counters()
if refused then return redis.error_reply(string.format('SDWAITING %d', waiting())) end
local entries = tonumber(standing[3] or 0) + (added.fingerprints or 0)
table.insert(unseen, 1, pack_('<Bdd', is_known and 1 or 0, turn, entries) .. last_call)
table.insert(unseen, 1, table.concat(answers))
return unseen
