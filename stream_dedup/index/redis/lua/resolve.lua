#!lua
-- Find or open a cluster for each query, in order, each seeing those before it.
-- KEYS  meta, expiry, recency, due, garbage, inserted, gone; then each query's own cluster; then for each
--       query its slice of exact hashes, and its slice of every table (none when it is not to be
--       matched by fingerprint)
-- ARGV  incarnation, settings (see _shard.lua), MATCHING, a random name of this call, what the caller has
--       seen ('' if it keeps no mirror, see mirror.py): the name of the call up to which it knows all
--       that was inserted (zeros: nothing was), then the names of its own calls that are not answered
--       yet; then the queries: QUERY_COUNT, and for each QUERY and, each behind its length, its
--       fingerprint, sketch, group, position, its members of all tables one after the other, and what
--       the caller's mirror holds near it (see QUERY_TEXTS), or '?' if that is not known; an id of
--       0 stands for what a query before it inserts, of 1 for what another call of the caller does; then for
--       each query the keys of its pattern: PATTERN, and what one_off.py says
-- Returns {resolutions, MIRROR_STATE, calls that the caller has not seen …}.
--       Resolutions: a RESOLUTION for each query, in order; fewer than were asked when the budget of
--       work was spent: ask again for the rest.
--       A call: INSERTING_CALL, and what it inserted: low group hash ‖ fingerprint ‖ id each.
--       SDWAITING if the first query needs a new cluster while too many closed ones (their number
--       follows) wait for their final summary.
-- Cost  a query known by its exact hash 3 commands, else one a near cluster, and one a table if they
--       are to be searched; one that opens a cluster 5 and one a table, or two if the times to live of
--       slices are renewed; of keys of bands two more for each slice that has outgrown its memory, some two
--       in all. Twenty a call. If words are learned, two more for each of some three slices
--       of posting lists; two for what varies together, if anything is listed for its shape, and some four for each
--       combination beside which it is noted; some ten for a cluster that merges, one for each of its names,
--       and three for each slice of the posting lists that name it.
local reply = lost()
if reply then return reply end

local expiry, recency, due, garbage_key, inserted_key = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local verifies = jaccard > 0

local full_from  -- made with the first fingerprint

-- Entries that other callers inserted since this one has looked: a query is compared with each of them,
-- unless they are so many that the tables are searched instead.
local CALLS_KEPT, MOST_UNSEEN = IS_BANDS and 64 or 256, 256
local NOTHING_YET = string.rep('\0', CALL_NAME_BYTES)
local name_of_call, seen = ARGV[4], ARGV[5]
local stored_meta = call('HMGET', META, 'inserted', 'turn', 'fingerprints', 'kept', 'kept_for', 'vanished', 'shapes')
listed_shapes = stored_meta[7] or ''
local last_call, call_number = stored_meta[1] or NOTHING_YET, tonumber(stored_meta[2] or 0)
local unseen, unseen_entries, is_known = {}, 0, false
local entry_bytes  -- of what was inserted, known with the first query

-- Whether all calls since the one that the caller knows are among the last `depth`. Their numbers
-- are consecutive: a call that failed half-way has taken a number and is missing in the list.
local function reaches_back(depth)
  local own, base = {}, sub(seen, 1, CALL_NAME_BYTES)
  for at = CALL_NAME_BYTES + 1, #seen, CALL_NAME_BYTES do
    own[sub(seen, at, at + CALL_NAME_BYTES - 1)] = true
  end
  local calls = call('LRANGE', inserted_key, -depth, -1)
  unseen = {}
  for i = #calls, 1, -1 do
    local INSERTING_CALL_FIELDS = unpack_bytes(INSERTING_CALL, calls[i])
    if number ~= call_number - (#calls - i) then return false end
    if name == base then return true end
    if not own[name] then unseen[#unseen + 1] = calls[i] end
  end
  return base == NOTHING_YET and call_number == #calls
end

local function look_back(fingerprint_bytes)
  entry_bytes = INSERTED_OTHER_BYTES + fingerprint_bytes
  if seen == '' then return end
  is_known = sub(seen, 1, CALL_NAME_BYTES) == last_call or reaches_back(8) or reaches_back(CALLS_KEPT)
  if not is_known then unseen = {} end
  for i = 1, #unseen do
    unseen_entries = unseen_entries + (#unseen[i] - INSERTING_CALL_BYTES) / entry_bytes
  end
end

-- Whether one of these entries is near a query.
local function is_near_unseen(q)
  if unseen_entries == 0 then return false end
  if IS_BANDS then return shares_unseen_key(q, unseen, entry_bytes) end
  local from, group = nil, sub(q.field, LOW_GROUP_AT, GROUP_BYTES)
  work = work + unseen_entries * 0.2
  for i = 1, #unseen do
    for at = INSERTING_CALL_BYTES + 1, #unseen[i], entry_bytes do
      if sub(unseen[i], at, at + LOW_GROUP_BYTES - 1) == group then
        from = from or full_from(q.fingerprint)
        if from(sub(unseen[i], at + LOW_GROUP_BYTES, at + entry_bytes - ID_BYTES - 1)) <= k then
          return true
        end
      end
    end
  end
  return false
end

-- Clusters by low group hash ‖ fingerprint: what this call has inserted, and what calls of the same caller
-- have that were on their way when it was packed. The caller does not know their clusters.
local inserted_here = {}
local function note_inserted(into, key, id)
  local ids = into[key]
  if ids then ids[#ids + 1] = id else into[key] = {id} end
end

local inserted = {}
local loaded, dirty, opened = {}, {}, {}
local keys = {expiry = expiry, recency = recency, due = due, garbage = garbage_key, gone = KEYS[7]}
local just_merged, has_merged = {}, false  -- the id of a cluster → that of the one it merged into

local function load_cluster(id, key)
  local c = loaded[id]
  if c == nil then
    work = work + 1
    key = key or key_of(id)
    local stored = call('GET', key)
    c = read_cluster(id, key, stored) or false
    if stored and not c then call('DEL', key, values_key(key)) end  -- left behind by data that was lost
    loaded[id] = c
  end
  return c
end

local function takes(c, q)
  return c and c[C_STATE] == OPEN and expires_us(c) >= q.first
end

local function join(c, q)
  if q.last > c[C_LAST_US] then
    c[C_LAST_US] = q.last
    dirty[c.id] = c
  end
  return c
end

-- Whether a cluster has a name for which a test holds.
local function has_name(c, holds)
  local names = c[C_NAME_LIST]
  local size = NAME_OTHER_BYTES + #c[C_FINGERPRINT]
  for at = (IS_BANDS and BANDS_HEAD_BYTES or NAMES_HEAD_BYTES) + 1, #names, size do
    local behind = at + EXACT_BYTES
    if holds(sub(names, at, behind - 1), sub(names, behind, at + size - 1 - FLAG_BYTES), byte(names, at + size - 1) == 1) then
      return true
    end
  end
  return false
end

-- Whether a cluster that was opened again may be found by what named it before: that is not purged yet. Once
-- it is, an opening that is recorded is like any other.
local has_garbage
local function has_former_names(c)
  if c[C_BEFORE] == OPEN then return false end
  if is_provisional(c) then return true end
  if has_garbage == nil then
    has_garbage = call('EXISTS', garbage_key) == 1
    work = work + 1
  end
  if not has_garbage then
    c[C_BEFORE] = OPEN
    dirty[c.id] = c
  end
  return has_garbage
end

-- A match counts only if the cluster still has that name.
local function leads_to(c, q)
  return not has_former_names(c) or has_name(c, function(exact) return exact == sub(q.field, GROUP_BYTES + 1) end)
end

local function reaches(c, q)
  if not has_former_names(c) then return true end
  local from = full_from(q.fingerprint)
  if IS_BANDS then return c[C_SEARCHABLE] > 0 and from(fingerprint_of(c)) <= k end
  return has_name(c, function(_, fingerprint, searchable) return searchable and from(fingerprint) <= k end)
end

-- The cluster that a query is near to, and its distance; nil if there is none.
local search

do  -- a script has room for 200 local names
  local PENDING_HERE, PENDING = string.rep('\0', ID_BYTES), string.rep('\0', ID_BYTES - 1) .. '\1'
  local ids_of_pending

  do  -- likewise
    local inserted_by_others, all_have_run = nil, false

    local function read_pending_calls()
      local own, left = {}, #seen / CALL_NAME_BYTES - 1
      for at = CALL_NAME_BYTES + 1, #seen, CALL_NAME_BYTES do own[sub(seen, at, at + CALL_NAME_BYTES - 1)] = true end
      local calls = call('LRANGE', inserted_key, -left - 8, -1)
      inserted_by_others = {}
      for i = 1, #calls do
        if own[sub(calls[i], 1, CALL_NAME_BYTES)] then
          left = left - 1
          for at = INSERTING_CALL_BYTES + 1, #calls[i], entry_bytes do
            local behind = at + entry_bytes
            note_inserted(inserted_by_others, sub(calls[i], at, behind - ID_BYTES - 1), sub(calls[i], behind - ID_BYTES, behind - 1))
            work = work + 0.2
          end
        end
      end
      all_have_run = left == 0
    end

    -- The clusters of an entry that was pending; nil if that is not known.
    local NO_IDS = {}
    function ids_of_pending(id, key)
      if id == PENDING_HERE then return inserted_here[key] or NO_IDS end
      if not inserted_by_others then read_pending_calls() end
      return inserted_by_others[key] or (all_have_run and NO_IDS or nil)
    end
  end

  -- The live clusters of the group within k bits: all of them, unless there are too many; then those
  -- with the nearest entries, of equally near ones the oldest. Also whether some were left out.
  -- Loading a cluster costs a command, so they are loaded nearest entry first, until twice as many live
  -- ones as are kept, or four times as many in all, were loaded; the oldest of those are kept. Clusters
  -- that were not loaded count as left out. It ends, too, when so much work was done in all.
  local function live_of(near, by_distance, q, still_leads, until_work)
    local live, looked = {}, 0
    for distance = 0, k do
      local ids, nearer = by_distance[distance] or {}, #live
      for i = 1, #ids do
        local id = ids[i]
        if near[id] == distance then  -- else another of its entries is nearer
          if #live == 2 * max_verified or looked == 4 * max_verified then break end
          if work + VERIFYING_WORK * #live >= until_work then
            cut_by_work = true
            return live, true
          end
          looked = looked + 1
          local c = load_cluster(id)
          if takes(c, q) and c[C_GROUP] == q.group and reaches(c, q) and still_leads(c) then live[#live + 1] = c end
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

  -- Entries near a query that the caller's mirror holds; and a test of whether a cluster still has one of
  -- them: the entry may be of an earlier cluster with the same id. Nothing if the tables have to be searched.
  local function entries_of_mirror(q)
    local near, by_distance, fingerprints = {}, {}, {}
    local from, length = full_from(q.fingerprint), #q.fingerprint
    local function add_entry(id, fingerprint)
      note(id, from(fingerprint), near, by_distance)
      fingerprints[id] = fingerprints[id] or {}
      table.insert(fingerprints[id], fingerprint)
    end
    local function add_compared()
      q.compared, q.similarities = {}, {}
      local at = IN_TABLES_BYTES + 1
      while at <= #q.mirrored do
        local MIRRORED_FIELDS = unpack_bytes(MIRRORED, q.mirrored, at)
        at = behind
        add_entry(id, fingerprint)
        if sketch ~= '' then q.compared[id], q.similarities[id] = sketch, similarity end
      end
    end
    local function add_all()  -- whether all pending ones are known
      for at = 1, #q.mirrored, ID_BYTES + length do
        local behind = at + ID_BYTES
        local id, fingerprint = sub(q.mirrored, at, behind - 1), sub(q.mirrored, behind, behind + length - 1)
        if id == PENDING_HERE or id == PENDING then
          local ids = ids_of_pending(id, sub(q.field, LOW_GROUP_AT, GROUP_BYTES) .. fingerprint)
          if not ids then return false end
          for i = 1, #ids do add_entry(ids[i], fingerprint) end
        else
          add_entry(id, fingerprint)
        end
      end
      return true
    end
    if IS_BANDS then
      add_compared()
    elseif not add_all() then
      return nil
    end
    local function still_leads(c)
      if IS_BANDS then
        local own = c[C_SEARCHABLE] > 0 and fingerprint_of(c)
        for _, fingerprint in ipairs(fingerprints[c.id]) do
          if fingerprint == own then return is_led_to(c, q) end
        end
        return false
      end
      local names = c[C_NAME_LIST]
      for _, fingerprint in ipairs(fingerprints[c.id]) do
        local entry = fingerprint .. '\1'
        local first = NAMES_HEAD_BYTES + EXACT_BYTES + 1
        local at = string.find(names, entry, first, true)
        while at and (at - first) % (NAME_OTHER_BYTES + length) ~= 0 do
          at = string.find(names, entry, at + 1, true)
        end
        if at then return true end
      end
      return false
    end
    return near, by_distance, false, still_leads
  end

  function search(q)
    cut_by_work = false
    local mirrored = is_known and unseen_entries <= MOST_UNSEEN and q.mirrored ~= '?' and not is_near_unseen(q)
    if mirrored and q.mirrored == '' then return nil end
    if mirrored and IS_BANDS then q.crowds = unpack_bytes(IN_TABLES, q.mirrored) end
    local near, by_distance, truncated, still_leads
    if mirrored then near, by_distance, truncated, still_leads = entries_of_mirror(q) end
    if not near then near, by_distance, truncated, still_leads = entries_of_tables(q) end
    local work_before = work
    local live, crowded = live_of(near, by_distance, q, still_leads, work + allowance)
    if truncated or crowded then add('truncated', 1) end
    if cut_by_work then add('cut_by_work', 1) end
    local best, best_similarity, best_distance
    local from, like
    for i = 1, #live do
      local c = live[i]
      local distance, similarity, admitted = nil, 0, true
      if verifies then
        if q.compared and q.compared[c.id] == c[C_SKETCH] then
          similarity = q.similarities[c.id]
        else
          like = like or similarity_to(q.sketch, jaccard)
          similarity = like(c[C_SKETCH])
        end
        admitted = similarity >= jaccard
        work = work + VERIFYING_WORK
      end
      if admitted then
        from = from or full_from(q.fingerprint)
        distance = from(fingerprint_of(c))
        admitted = distance <= k or (verifies and not IS_BANDS)  -- other keys may have the same marks
      end
      if admitted then
        local better = best == nil or similarity > best_similarity
        if not better and similarity == best_similarity then
          better = distance < best_distance
          if not better and distance == best_distance then
            better = c[C_OPENED_US] < best[C_OPENED_US] or (c[C_OPENED_US] == best[C_OPENED_US] and before(c.id, best.id))
          end
        end
        if better then best, best_similarity, best_distance = c, similarity, distance end
      end
    end
    allowance = math.max(0, allowance - (work - work_before))
    return best, best_distance
  end
end

-- Whether the slices that a query is about to write (of exact hashes and, if `searchable`, of tables)
-- need no new time to live: all exist, and a round has renewed them. Slices of keys of bands say themselves
-- whether they existed.
all_renewed = stored_meta[4] and not is_worn(tonumber(stored_meta[4])) and stored_meta[5] == ttl
local slices_exist = false  -- all of the call's queries, when it began
local function are_renewed(q, searchable)
  local last = q.at + (searchable and not IS_BANDS and tables or 0)
  return all_renewed and (slices_exist or call('EXISTS', unpack(KEYS, q.at, last)) == last - q.at + 1)
end

local function insert(q, id, renewed)
  if #inserted == 0 then  -- before anything can fail
    last_call, call_number = name_of_call, call_number + 1
    call('HSET', META, 'inserted', last_call, 'turn', string.format('%.0f', call_number))
  end
  write_members(q, id, renewed)
  local key = sub(q.field, LOW_GROUP_AT, GROUP_BYTES) .. q.fingerprint
  inserted[#inserted + 1] = key .. id
  if not IS_BANDS then note_inserted(inserted_here, key, id) end
  q.inserted = true
  add('fingerprints', 1)
end

-- Make the query's exact hash lead to a cluster, and its fingerprint if it is `searchable`.
local function lead(q, id, distance, searchable)
  local renewed = are_renewed(q, searchable)
  call('HSET', KEYS[q.at], q.field, id .. string.char(distance))
  if not renewed then renew(KEYS[q.at]) end
  if searchable then insert(q, id, renewed) end
end

-- Make the query's exact hash lead to the cluster, and its fingerprint if that is wanted: if a similar
-- one would else not be found.
local function add_alias(q, c, distance, wanted)
  if c[C_NAMES] > max_names then return end
  -- Without verification the alias's fingerprint could find nothing that the representative's does not.
  -- The keys of bands lead to representatives alone: sixteen more entries would cost more than all else.
  -- A representative that has too few words to be in the tables has no sketch, and is compared with nothing.
  local searchable = wanted and verifies and distance > 0 and not IS_BANDS and c[C_SEARCHABLE] > 0
  lead(q, c.id, distance, searchable)
  if searchable then c[C_SEARCHABLE] = c[C_SEARCHABLE] + 1 end
  c[C_NAMES] = c[C_NAMES] + 1
  c[C_NAME_LIST] = c[C_NAME_LIST] .. sub(q.field, GROUP_BYTES + 1) ..
    (IS_BANDS and '' or q.fingerprint) .. (searchable and '\1' or '\0')
  c.is_changed_text = true
  dirty[c.id] = c
  work = work + 2
end

-- Open the cluster with the query's id, also if it is stored already.
local function open(q, earlier)
  if #opened == 0 then  -- fails before anything is written, if they are not queues
    call('ZCARD', expiry)
    call('ZCARD', recency)
  end
  local is_stored = earlier and earlier[C_STATE] ~= GONE
  if is_stored and learn > 0 then remove_postings(earlier) end
  local c = opened_for(q, q.id, q.key, q.near and 1 or 0, earlier, due, garbage_key)
  if not c then return nil end
  -- GONE: its names have to be checked. What named it before is not purged yet: nothing was recorded of it, or one
  -- with this id has vanished.
  if is_stored then
    if c[C_BEFORE] == OPEN then c[C_BEFORE] = GONE end
    c.is_merged = false
  elseif stored_meta[6] or has_vanished then
    c[C_BEFORE] = GONE
  end
  c[C_LEARNED], c[C_LEARNED_WORDS] = 0, 0
  local its_keys = learn > 0 and keys_of_new(q) or nil
  c.is_noted = its_keys ~= nil
  c[C_POSTING_KEYS] = its_keys or c[C_POSTING_KEYS]
  if IS_BANDS then
    -- What was opened before may still be in the tables.
    if q.near and not q.owners then
      local wanted = (earlier or c[C_BEFORE] ~= OPEN) and ALL_TABLES or q.crowds
      if wanted > 0 then read_tables(q, wanted) end
    end
    c[C_NAME_LIST] = names_with_keys(q)
  else
    c[C_NAME_LIST], c[C_FINGERPRINT] = q.field .. q.fingerprint .. (q.near and '\1' or '\0'), q.fingerprint
  end
  call('SET', c.key, pack_whole(c), 'PX', ttl)
  c.is_changed_text = false
  if has_values(c) then renew(values_key(c.key)) end
  loaded[c.id], dirty[c.id] = c, nil
  opened[#opened + 1] = c
  lead(q, c.id, 0, q.near)
  work = work + 3
  return c
end

-- The names of a cluster that lead to it, up to the cap, lead to another one from now on.
local function move_names(q, loser, root)
  local names, moved = loser[C_NAME_LIST], {}
  local size = NAME_OTHER_BYTES + #loser[C_FINGERPRINT]
  local from = full_from(root[C_FINGERPRINT])
  for at = NAMES_HEAD_BYTES + 1, #names, size do
    if root[C_NAMES] > max_names then break end
    local exact = sub(names, at, at + EXACT_BYTES - 1)
    local fingerprint = sub(names, at + EXACT_BYTES, at + size - 1 - FLAG_BYTES)
    local slice = string.format('%se:%d', SHARD, slice_number(exact, q.group_hash, exact_bits))
    local field = q.group_hash .. exact
    local known = call('HGET', slice, field)
    if known and sub(known, 1, ID_BYTES) == loser.id then
      call('HSET', slice, field, root.id .. string.char(from(fingerprint)))
      moved[#moved + 1] = exact .. fingerprint .. '\0'
      root[C_NAMES] = root[C_NAMES] + 1
    end
    work = work + 2
  end
  if #moved > 0 then
    root[C_NAME_LIST], root.is_changed_text = root[C_NAME_LIST] .. table.concat(moved), true
  end
end

local function merge(q, loser, root, looks)
  move_names(q, loser, root)
  looks = move_postings(q.group_hash, loser, root, looks)
  root[C_LAST_US] = math.max(root[C_LAST_US], loser[C_LAST_US])
  dirty[root.id] = root
  if not is_provisional(loser) then
    local moved = count_merged(loser, root)
    if moved > 0 then work = work + 2 + moved * 0.3 end
  end
  just_merged[loser.id], has_merged = root.id, true
  local vanishes = is_provisional(loser) and (loser[C_BEFORE] == OPEN or loser[C_BEFORE] == GONE)
  close(keys, loser, MERGED)
  dirty[loser.id], changed_keys[loser.id] = nil, nil
  loser.is_merged = true
  if vanishes and loser[C_STATE] == OPEN then loaded[loser.id] = false end
  work = work + 10
  return looks
end

local function offset_of(c)
  c.offset = c.offset or tonumber(string.match(c[C_POSITION], '^%d+:(%-?%d+):'))
  return c.offset
end

-- Recorded ones first; then the oldest, and of those that are equally old the one that was read first.
local function root_before(one, other)
  local a, b = is_provisional(one), is_provisional(other)
  if a ~= b then return b end
  if one[C_OPENED_US] == other[C_OPENED_US] and offset_of(one) ~= offset_of(other) then
    return offset_of(one) < offset_of(other)
  end
  return older(one, other)
end

-- Merge the cluster that was found and those of learned slots; the one that is left, or nil.
local function merge_all(q, found, merging)
  if found then merging[found.id] = found end
  local clusters = {}
  for _, c in pairs(merging) do clusters[#clusters + 1] = c end
  if #clusters < 2 then return clusters[1] end
  table.sort(clusters, older)
  local root = clusters[1]
  for i = 2, #clusters do
    if root_before(clusters[i], root) then root = clusters[i] end
  end
  local looks = MAX_POSTING_LISTS
  for i = 1, #clusters do
    if clusters[i] ~= root then looks = merge(q, clusters[i], root, looks) end
  end
  write_closed(keys)
  return root
end

-- Resolve a query whose exact hash is unknown and whose words are learned.
local resolve_by_words

do  -- a script has room for 200 local names
  -- A function that returns the cluster that a posting names, if it takes the query's event; with `is_past` also
  -- if its window has passed. Of so many clusters; the others count as not looked at.
  local function owners_for(q)
    local looks, skipped = 0, {}
    return function(posting, list, is_past)
      local id = posting.id
      if loaded[id] == nil then
        if looks == MAX_LOADED and not skipped[id] then
          if not next(skipped) then add('truncated', 1) end
          skipped[id] = true
        end
        if skipped[id] then return nil, true end
        looks = looks + 1
      end
      local c = load_cluster(id)
      if not (takes(c, q) or is_past and c and c[C_STATE] == OPEN) or c[C_GROUP] ~= q.group then return nil end
      if has_former_names(c) and not has_key(c, list.key) then return nil end
      return c
    end
  end

  -- Let a query join whose own word is a known variable: no values are noted.
  local function join_by_variable(q, found, live)
    local ready = ready_slots(q, live, true)
    local root = merge_all(q, found, ready.merging)
    show_slots(root, ready)
    local distance = full_from(q.fingerprint)(root[C_FINGERPRINT])
    add_alias(q, root, distance, false)
    join(root, q)
    learn_slots(q, root, ready, live)
    note_together(q, root, ready, live)
    if root.is_changed then dirty[root.id] = root end
    return root, distance, BY_LEARNED
  end

  -- Open a cluster, and note the values of its pattern.
  local function open_by_words(q, own, ready, live)
    local c = open(q, own)
    if c then
      note_words(q, c, ready, live, true)
      note_assumed(q, c, live)
      if c.is_changed then dirty[c.id] = c end
    end
    return c, 0, BY_OPENING
  end

  function resolve_by_words(q, own)
    local live = owners_for(q)
    local found, is_variable = find_by_words(q, live)
    if is_variable then return join_by_variable(q, found, live) end
    local found_by = BY_WORDS
    if not found and q.near then
      found, found_by = search(q), BY_FINGERPRINT
    end
    if not found then found_by = BY_LEARNED end  -- if its values complete a slot: it joins the clusters found there
    local ready = ready_slots(q, live, false)
    local root = merge_all(q, found, ready.merging)
    if not root then return open_by_words(q, own, ready, live) end
    show_slots(root, ready)
    local distance = full_from(q.fingerprint)(root[C_FINGERPRINT])
    add_alias(q, root, distance, found_by == BY_FINGERPRINT)
    join(root, q)
    note_words(q, root, ready, live, false, found_by ~= BY_LEARNED)
    if found_by == BY_LEARNED then note_together(q, root, ready, live) end
    if root.is_changed then dirty[root.id] = root end
    return root, distance, found_by
  end
end

local none_stored = false  -- of the clusters that the queries would open, when the call began
local function resolve(q)
  local own = loaded[q.id]
  if own == nil and not none_stored then own = load_cluster(q.id, q.key) end
  if takes(own, q) and fingerprint_of(own) == q.fingerprint then
    return join(own, q), 0, BY_OPENING  -- the same event has opened it before; others may be as near
  end
  work = work + 1
  local known = call('HGET', KEYS[q.at], q.field)
  if known then
    local c = load_cluster(sub(known, 1, ID_BYTES))
    if takes(c, q) and c[C_GROUP] == q.group and leads_to(c, q) then
      return join(c, q), byte(known, ID_BYTES + 1), BY_EXACT
    end
  end
  if q.words > 0 then return resolve_by_words(q, own) end
  if q.near then
    local c, distance = search(q)
    if c then
      add_alias(q, c, distance, true)
      return join(c, q), distance, BY_FINGERPRINT
    end
  end
  return open(q, own), 0, BY_OPENING
end

-- All opened clusters enter the queues at once, at the end: nothing here reads the queues. (A call opens
-- few enough for the number of arguments that Lua can pass.)
local function queue()
  local expiries, recencies = {}, {}
  for i = 1, #opened do
    local c = opened[i]
    if not c.is_merged then
      local at, expiries_at = #recencies, #expiries
      recencies[at + 1], recencies[at + 2] = c[C_LAST_US], c.id
      if expires_by_age(c) then expiries[expiries_at + 1], expiries[expiries_at + 2] = expires_us(c), c.id end
    end
  end
  if #recencies == 0 then return end
  call('ZADD', recency, unpack(recencies))
  if #expiries > 0 then call('ZADD', expiry, unpack(expiries)) end
  for i = 1, 4 do renew(KEYS[i]) end
end

local answers, refused = {}, false
local asked = {}  -- the answers' queries and clusters, if words are learned
local queries = ARGV[6]
local QUERY_COUNT_FIELDS = unpack_bytes(QUERY_COUNT, queries)

local function answer(q, c, distance, found_by)
  return pack_bytes(RESOLUTION, c.id, c[C_OPENED_US], c[C_LAST_US], distance, (c.id == q.id and NEW or 0)
    + (is_provisional(c) and 0 or RECORDED_BEFORE) + (q.inserted and INSERTED or 0)
    + found_by * FOUND_BY, 0)  -- see add_learned
end

-- Answers that name clusters which later queries of the call have merged name what is left.
local function follow_merges()
  for i = 1, #asked do
    local q, id = unpack(asked[i])
    local named = id
    while not (loaded[id] and loaded[id][C_STATE] == OPEN) do id = just_merged[id] end
    if id ~= named then
      local root = loaded[id]
      q.inserted = false  -- what was inserted leads to a cluster that is closed
      answers[i] = answer(q, join(root, q), full_from(q.fingerprint)(root[C_FINGERPRINT]), BY_LEARNED)
    end
  end
end

local function resolve_all()
  none_stored = call('EXISTS', unpack(KEYS, 8, 7 + count)) == 0
  slices_exist = all_renewed and not IS_BANDS and call('EXISTS', unpack(KEYS, 8 + count)) == #KEYS - 7 - count
  local at, byte_at, words_at = 8 + count, QUERY_COUNT_BYTES + 1, 1
  for i = 1, count do
    if i > 1 and work >= budget then break end
    local QUERY_FIELDS, after = unpack_bytes(QUERY, queries, byte_at)
    byte_at = after
    -- All its fields from the start: a table that grows by each costs more than what it holds.
    local q = {at = at, key = KEYS[7 + i], first = first_us, last = last_us, id = id, field = field,
      fingerprint = fingerprint, sketch = sketch, group = group, position = position, members = members,
      mirrored = mirrored, near = #members > 0, inserted = false, words = 0, plain = false,
      slices = 0, keys_at = 0, places_at = 0, places = false, slots = false, own_list = false, group_hash = false,
      varying = false, combinations = false, together = false, fits = false, shown = false,
      owners = false, crowds = 0, compared = false, similarities = false,
      in_tables = #members > 0 and 2 ^ tables - 1 or 0}
    if learn > 0 then words_at = unpack_pattern(q, words_at) end
    if not full_from then
      full_from = distances(#fingerprint, 1)
      look_back(#fingerprint)
    end
    allowance = allowance + search_work
    local c, distance, found_by = resolve(q)
    if not c then
      refused = i == 1
      break
    end
    answers[i] = answer(q, c, distance, found_by)
    if learn > 0 then asked[i] = {q, c.id} end
    at = at + 1 + (q.near and tables or 0)
  end
end

-- Answers say what their clusters have learned after all queries of the call.
local function add_learned()
  for i = 1, #asked do
    local c = loaded[sub(answers[i], 1, ID_BYTES)]
    if c[C_LEARNED] ~= 0 then
      local RESOLUTION_FIELDS = unpack_bytes(RESOLUTION, answers[i])
      learned = c[C_LEARNED]
      answers[i] = pack_bytes(RESOLUTION, RESOLUTION_FIELDS)
    end
  end
end

local done, problem = pcall(resolve_all)
write_closed(keys)
queue()  -- also after an error (a key of another type): what was opened has to be closed one day
if not done then
  for _, c in pairs(dirty) do write_cluster(c) end  -- names that were inserted have to be purged one day
  error(problem, 0)
end

if has_merged then follow_merges() end
if learn > 0 then
  add_learned()
  write_postings()
  for id, c in pairs(changed_keys) do dirty[id] = c end
end
for _, c in pairs(dirty) do write_cluster(c) end
if #inserted > 0 then
  call('RPUSH', inserted_key, pack_bytes(INSERTING_CALL, last_call, call_number) .. table.concat(inserted))
  call('LTRIM', inserted_key, -CALLS_KEPT, -1)
  renew(inserted_key)
end
if call('EXISTS', garbage_key) == 1 then renew(garbage_key) end
write_counters()
if refused then return redis.error_reply(string.format('SDWAITING %d', number('waiting'))) end
local entries = tonumber(stored_meta[3] or 0) + (added.fingerprints or 0)
table.insert(unseen, 1, pack_bytes(MIRROR_STATE, is_known and 1 or 0, call_number, entries, last_call))
table.insert(unseen, 1, table.concat(answers))
return unseen
