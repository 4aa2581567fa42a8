#!lua
-- Find or open a cluster for each query, in order, each seeing those before it.
-- KEYS  meta, expiry, recency, due, garbage, inserted; then for each query its own cluster, its
--       slice of exact hashes, and its slice of every table (none when it is not to be matched by
--       fingerprint)
-- ARGV  incarnation, settings (see _shard.lua), rules, a random name of this call (8 bytes), what the
--       caller has seen ('' if it keeps no mirror, see mirror.py): the name of the call up to which
--       it knows all that was inserted (zeros: nothing was), then the names of its own calls on
--       their way; then for each query
--       its times (first, last: microseconds), its own id, group hash(4) ‖ exact hash(8),
--       fingerprint, sketch, group, position, its members of all tables one after the other, what
--       the caller's mirror holds near it: id(8) ‖ fingerprint each, or '?' if that is not known
-- Returns {what was decided, where this shard stands, calls that the caller has not seen …}.
--       Decided: 26 bytes a query: id(8), opened, last (doubles), distance, and flags (bytes): 1 new,
--       2 settled, 4 its fingerprint was inserted.
--       Fewer than were asked when the budget of work was spent: ask again for the rest.
--       Where it stands: 1 if what the caller has seen is known here (1 byte), number of the last call
--       that inserted, entries in the tables (doubles), name of that call.
--       A call: its name(8), number (double), and what it inserted: group hash(2), fingerprint, id(8)
--       each.
--       SDWAITING if the first of them needs a new cluster while too many closed ones (their number
--       follows) wait for their final summary.
-- Cost  a query known by its exact hash 4 commands, else one a near cluster, and one a table if they
--       are to be searched; one that opens a cluster 8 and two a table.
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
local standing = call('HMGET', META, 'inserted', 'turn', 'fingerprints')
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
local states, dirty = {}, {}

local function state(id)
  local c = states[id]
  if c == nil then
    work = work + 1
    local key = key_of(id)
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
    local found = call('ZRANGE', KEYS[q.at + 1 + t], prefix, prefix .. AFTER, 'BYLEX', 'LIMIT', '0',
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

local function insert(q, id)
  for t = 1, tables do
    local member = sub(q.members, (t - 1) * member_bytes + 1, t * member_bytes)
    if id ~= q.id then member = sub(member, 1, -9) .. id end
    local slice = KEYS[q.at + 1 + t]
    call('ZADD', slice, '0', member)
    keep(slice)
  end
  work = work + tables
  if #inserted == 0 then  -- before anything can fail
    last_call, turn = name_of_call, turn + 1
    call('HSET', META, 'inserted', last_call, 'turn', string.format('%.0f', turn))
  end
  inserted[#inserted + 1] = sub(q.field, 3, 4) .. q.fingerprint .. id
  q.inserted = true
  add('fingerprints', 1)
end

local function name(q, id, distance)
  call('HSET', KEYS[q.at + 1], q.field, id .. string.char(distance))
  keep(KEYS[q.at + 1])
end

local function entry(q, searchable)
  return sub(q.field, 5) .. q.fingerprint .. string.char(searchable and 1 or 0)
end

-- Make the query's exact hash and fingerprint lead to the cluster.
local function add_alias(q, c, distance)
  if c[NAMES] > max_names then return end
  name(q, c.id, distance)
  -- Without verification its fingerprint could lead to nothing the representative's does not.
  local searchable = verifies and distance > 0
  if searchable then
    insert(q, c.id)
    c[SEARCHABLE] = c[SEARCHABLE] + 1
  end
  c[NAMES] = c[NAMES] + 1
  dirty[c.id] = c
  call('HSET', c.key, 'a', call('HGET', c.key, 'a') .. entry(q, searchable))
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
local opened_any = false
local function open(q, standing)
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
    c = {q.first, q.last, q.first, q.first, 0, 0, 0, q.first, 0, 0, 0, 0, OPEN, 0, 0, 0, 0, now_s, INCARNATION, 0}
    c.id, c.key = q.id, KEYS[q.at]
    if standing and standing[UNTIL] >= now_us then  -- it was delivered again late
      c[REVISION], c[COUNT], c[UNTIL] = standing[REVISION], standing[COUNT], standing[UNTIL]
      c[TOLD], c[BASE] = c[COUNT], c[COUNT]
    end
  end
  c[OPENED], c[LAST], c[CLOSING], c[NAMES], c[SEARCHABLE] = q.first, q.last, OPEN, 1, q.near and 1 or 0
  c.fingerprint, c.group, c.sketch = q.fingerprint, q.group, q.sketch
  c[RENEWED] = now_s
  call('HSET', c.key, 'n', packed(c), 'f', q.fingerprint, 'g', q.group, 'p', q.position, 's', q.sketch,
    'a', sub(q.field, 1, 4) .. entry(q, q.near))
  keep(c.key)
  states[c.id], dirty[c.id] = c, nil
  call('ZADD', expiry, expires_us(c), c.id)
  call('ZADD', recency, c[LAST], c.id)
  name(q, c.id, 0)
  if q.near then insert(q, c.id) end
  opened_any = true
  work = work + 4
  return c
end

local function resolve(q)
  local own = state(q.id)
  if takes(own, q) and own.fingerprint == q.fingerprint then
    return join(own, q), 0  -- it has opened it before; others may be as near
  end
  work = work + 1
  local known = call('HGET', KEYS[q.at + 1], q.field)
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

local answers, refused = {}, false
local at, arg = 7, 6
while arg <= #ARGV and (work < budget or arg == 6) do
  local q = {at = at, id = ARGV[arg + 1], field = ARGV[arg + 2], fingerprint = ARGV[arg + 3],
    sketch = ARGV[arg + 4], group = ARGV[arg + 5], position = ARGV[arg + 6], members = ARGV[arg + 7],
    mirrored = ARGV[arg + 8]}
  q.first, q.last = unpack_('<dd', ARGV[arg])
  q.near = #q.members > 0
  if not full_from then
    full_from = distances(#q.fingerprint, 1)
    look_back(#q.fingerprint)
  end
  local c, distance = resolve(q)
  if not c then
    refused = #answers == 0
    break
  end
  answers[#answers + 1] = c.id .. pack_('<ddBB', c[OPENED], c[LAST], distance,
    (c.id == q.id and 1 or 0) + 2 * c[SETTLED] + (q.inserted and 4 or 0))
  at = at + 2 + (q.near and tables or 0)
  arg = arg + 9
end
for _, c in pairs(dirty) do call('HSET', c.key, 'n', packed(c)) end
if opened_any then
  for i = 1, 4 do keep(KEYS[i]) end
end
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
