#!lua
-- Carry out requests of the spread index at this shard, in order, each an atomic step of its own; see
-- docs/sharding-by-fingerprint.md. tests/unit/index/spread/node.py is the same in Python.
-- KEYS  meta, begun, expiry, recency, due, garbage, gone, held; then the keys of each request, in order: of STEP_BEGIN the cluster, its intent and the
--       slice of the exact hash; of STEP_JUDGE, STEP_JUDGE_EQUAL and STEP_OPEN the cluster and its intent; of
--       STEP_JOIN and STEP_JOIN_NAMED the cluster; of STEP_WITHDRAW the intent; of the others the slice
-- ARGV  incarnation, settings (see _shard.lua), MATCHING, requests: STEP each, and a fingerprint behind its
--       length; then queries, which requests name by their place: ASKED, and fingerprint, sketch, group and
--       position, each behind its length
-- Returns for each request its answer, in order: FOUND, or ANSWER_BESIDE or ANSWER_CUT and entries with
--       fingerprints, or one byte. Fewer than were asked when the budget of work was spent: ask again for the rest.
-- Cost  STEP_BEGIN seven commands, or one or two if a cluster is found here; STEP_OFFER three;
--       STEP_JUDGE one or two; STEP_OPEN seven; STEP_JOIN two or three; STEP_ADD two; STEP_REMOVE one; STEP_WITHDRAW two.
--
-- The name list of a cluster begins with SPREAD_NAMES: the ticket under which it was opened, and its group. So a
-- piece of garbage says where all its entries lie.
local reply = lost()
if reply then return reply end

local begun, expiry, recency, due, garbage_key, held = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[8]
local verifies = jaccard > 0
local AFTER = string.rep('\255', ID_BYTES + 1)  -- behind all members that begin with a hash
local ENTRY_WORK, LEASE = 0.3, tostring(LEASE_MS)

local server_s = math.floor(server_us / 1e6)

-- Texts that are needed often: making a string of a number takes time.
local ANSWERS = {}
for kind = ANSWER_FOUND, ANSWER_DONE do ANSWERS[kind] = string.char(kind) end
local MOST, ENOUGH = max_candidates + 1, string.format('%d', max_candidates + 2)  -- own entries are read too

local queries = {}
local function query_at(place)
  local q = queries[place]
  if not q then
    local ASKED_FIELDS = unpack_bytes(ASKED, ARGV[5 + place])
    q = {first = first_us, last = last_us, exact = exact, near = near, fingerprint = fingerprint,
      sketch = sketch, group = group, position = position, from = false, like = false}
    queries[place] = q
  end
  return q
end

-- Whether an attempt goes before another one; attempts of the same rank do not.
local function precedes(ticket, other)
  local a, b, c, d = unpack_bytes(RANK, ticket)
  local e, f, g, h = unpack_bytes(RANK, other)
  if a ~= e then return a < e end
  if b ~= f then return b < f end
  if c ~= g then return c < g end
  return d < h
end

-- The cluster with a key; nil if it is not stored.
local function load(id, key)
  work = work + 1
  local stored = call('GET', key)
  local c = read_cluster(id, key, stored)
  if c then
    c.ticket = sub(c[C_NAME_LIST], 1, TICKET_BYTES)
  elseif stored then
    call('DEL', key, values_key(key))  -- left behind by data that was lost
  end
  return c
end

local function load_open(id, key)
  local c = load(id, key)
  return c and c[C_STATE] == OPEN and c or nil
end

local function load_opened(id, key, ticket)
  local c = load_open(id, key)
  return c and c.ticket == ticket and c or nil
end

local function takes(c, q)
  return expires_us(c) >= q.first
end

local function distance_of(c, q)
  if c[C_FINGERPRINT] == q.fingerprint then return 0 end
  q.from = q.from or distances(#q.fingerprint, 1)(q.fingerprint)
  return q.from(c[C_FINGERPRINT])
end

local function similarity_of(c, q)
  if not verifies then return 0 end
  if c[C_SKETCH] == q.sketch then return 1 end
  q.like = q.like or similarity_to(q.sketch, 0)
  return q.like(c[C_SKETCH])
end

local function found(c, id, q)
  return pack_bytes(FOUND, ANSWER_FOUND, id, c.ticket, distance_of(c, q), similarity_of(c, q), c[C_OPENED_US],
    c[C_LAST_US], is_provisional(c) and 0 or 1, c[C_NAMES])
end

-- An element of the names of a cluster: by which an event finds it.
local function name_of(q, searchable)
  return q.exact .. q.fingerprint .. (searchable and '\1' or '\0')
end

-- Keep a cluster live for an event, and note its name if that is new: the caller inserts it.
local function touch(c, id, q, is_new_name)
  local is_later, worn, names = q.last > c[C_LAST_US], is_worn(c[C_RENEWED_S]), c[C_NAMES]
  if is_later then c[C_LAST_US] = q.last end
  local answer = found(c, id, q)
  if is_new_name then
    c[C_NAMES] = math.min(names, max_names) + 1
    if names <= max_names then
      local searchable = verifies and q.near == 1 and distance_of(c, q) > 0
      c[C_NAME_LIST], c.is_changed_text = c[C_NAME_LIST] .. name_of(q, searchable), true
      if searchable and c[C_SEARCHABLE] > 0 then
        c[C_SEARCHABLE] = c[C_SEARCHABLE] + 1
        add('fingerprints', 1)
      end
    end
  end
  if worn then renew_cluster(c) end
  if is_later or worn or c[C_NAMES] ~= names or c.is_changed_text then
    write_cluster(c)
    work = work + 1
  end
  return answer
end

-- The members of a slice with a hash, no more than a search may compare; and whether some were left out.
local function members_of(slice, hash)
  local first = '[' .. hash
  local members = call('ZRANGE', slice, first, first .. AFTER, 'BYLEX', 'LIMIT', '0', ENOUGH)
  work = work + 1 + ENTRY_WORK * #members
  local is_cut = #members > MOST
  if is_cut then members[#members] = nil end
  return members, is_cut
end

local function insert(slice, hash, entry, fingerprint)
  call('ZADD', slice, '0', hash .. entry .. fingerprint)
  renew(slice)
  work = work + 2
end

-- The answer of entries beside one of the caller's own: those for which a test holds.
local function beside(entry, holds, members, is_cut)
  local near = {ANSWERS[is_cut and ANSWER_CUT or ANSWER_BESIDE]}
  for i = 1, #members do
    local member = members[i]
    if holds(member) and sub(member, SPREAD_MEMBER_ID_AT, SPREAD_MEMBER_BYTES) ~= entry then
      near[#near + 1] = sub(member, SPREAD_MEMBER_ID_AT)
    end
  end
  return #near == 1 and near[1] or table.concat(near)
end

-- Whether a member's fingerprint is within k bits of a fingerprint. Most are not, and the first word shows it.
local function near_to(fingerprint)
  local format, count = words(#fingerprint), #fingerprint / 4
  local a, b, c, d = unpack_bytes(format, fingerprint)
  return function(member)
    local e, f, g, h = unpack_bytes(format, member, SPREAD_MEMBER_BYTES + 1)
    local left = k - bits(bxor(a, e))
    if left < 0 or count == 1 then return left >= 0 end
    left = left - bits(bxor(b, f))
    if left < 0 or count == 2 then return left >= 0 end
    return left >= bits(bxor(c, g)) + bits(bxor(d, h))
  end
end

local function forget(intent, entry)
  call('HDEL', begun, entry)
  work = work + 2
  local ticket = sub(entry, SPREAD_ENTRY_TICKET_AT)
  if call('GET', intent) == ticket then call('DEL', intent) end
end

local function begin(at, id, ticket, hash, q)
  local own = load_open(id, KEYS[at])
  if own and takes(own, q) and own[C_FINGERPRINT] == q.fingerprint then return touch(own, id, q) end
  local members, is_cut = members_of(KEYS[at + 2], hash)
  for i = 1, #members do
    local _, other, other_ticket = unpack_bytes(SPREAD_MEMBER, members[i])
    if sub(other, ID_BYTES) == sub(id, ID_BYTES) then  -- of this shard
      local c = load_opened(other, key_of(other), other_ticket)
      if c and takes(c, q) then return touch(c, other, q) end
    end
  end
  local before = call('GET', KEYS[at + 1])
  if before and precedes(before, ticket) then return ANSWERS[ANSWER_WAIT] end
  call('SET', KEYS[at + 1], ticket, 'PX', LEASE)
  call('HSET', begun, id .. ticket, pack_bytes(BEGUN, server_s, q.exact, q.near) .. q.fingerprint .. q.group)
  renew(begun)
  insert(KEYS[at + 2], hash, id .. ticket, q.fingerprint)
  work = work + 4
  return beside(id .. ticket, surely, members, is_cut)
end

local function offer(slice, hash, entry, fingerprint)
  insert(slice, hash, entry, fingerprint)
  return beside(entry, near_to(fingerprint), members_of(slice, hash))
end

local function judge(at, id, ticket, asker, q, equal)
  local c = load_opened(id, KEYS[at], ticket)
  if not c then
    work = work + 2
    if call('GET', KEYS[at + 1]) == ticket then
      if precedes(ticket, asker) then return ANSWERS[ANSWER_WAIT] end
      call('DEL', KEYS[at + 1])
    end
    return ANSWERS[ANSWER_STALE]
  end
  local admitted = equal
  if not equal and c[C_SEARCHABLE] > 0 then  -- one of too few words is found by equal events alone
    if verifies then admitted = similarity_of(c, q) >= jaccard else admitted = distance_of(c, q) <= k end
  end
  return admitted and takes(c, q) and found(c, id, q) or ANSWERS[ANSWER_ABSENT]
end

-- Opened clusters enter the queues at once, at the end: a command costs more than what it does.
local recencies, expiries = {}, {}

-- Open the cluster with an id, also if it is stored already.
local function open(at, id, ticket, q)
  local key, earlier = KEYS[at], load(id, KEYS[at])
  local is_open = earlier and earlier[C_STATE] == OPEN
  if is_open and earlier.ticket == ticket then return found(earlier, id, q) end
  if call('GET', KEYS[at + 1]) ~= ticket then return ANSWERS[ANSWER_LOST] end
  -- Another text's, or past its window. What is counted there belongs to it.
  if is_open and call('HGET', held, id) then return ANSWERS[ANSWER_WAIT] end
  local c = opened_for(q, id, key, q.near, earlier, due, garbage_key)
  if not c then
    forget(KEYS[at + 1], id .. ticket)
    return ANSWERS[ANSWER_FULL]
  end
  if is_open then renew(garbage_key) end
  call('HDEL', begun, id .. ticket)
  call('DEL', KEYS[at + 1])  -- it holds the ticket
  c.ticket, c[C_FINGERPRINT] = ticket, q.fingerprint
  c[C_NAME_LIST] = pack_bytes(SPREAD_NAMES, ticket, #q.group, q.group) .. name_of(q, q.near == 1)
  add('fingerprints', q.near)
  call('SET', key, pack_whole(c), 'PX', ttl)
  if has_values(c) then renew(values_key(key)) end
  recencies[#recencies + 1], recencies[#recencies + 2] = c[C_LAST_US], id
  if expires_by_age(c) then expiries[#expiries + 1], expiries[#expiries + 2] = expires_us(c), id end
  work = work + 6
  return found(c, id, q)
end

local answers, requests, at, key_at = {}, ARGV[4], 1, 9
local function carry_out()
  while at <= #requests and (#answers == 0 or work < budget) do
    local STEP_FIELDS, after = unpack_bytes(STEP, requests, at)
    local answer = ANSWERS[ANSWER_DONE]
    local key, keys = KEYS[key_at], 1
    add('truncated', cut)
    if kind == STEP_BEGIN then
      answer, keys = begin(key_at, id, ticket, hash, query_at(query)), 3
    elseif kind == STEP_OFFER then
      answer = offer(key, hash, id .. ticket, fingerprint)
    elseif kind == STEP_JUDGE or kind == STEP_JUDGE_EQUAL then
      answer, keys = judge(key_at, id, ticket, asker, query_at(query), kind == STEP_JUDGE_EQUAL), 2
    elseif kind == STEP_OPEN then
      answer, keys = open(key_at, id, ticket, query_at(query)), 2
    elseif kind == STEP_JOIN or kind == STEP_JOIN_NAMED then
      local c, q = load_opened(id, key, ticket), query_at(query)
      answer = c and takes(c, q) and touch(c, id, q, kind == STEP_JOIN) or ANSWERS[ANSWER_ABSENT]
    elseif kind == STEP_ADD then
      insert(key, hash, id .. ticket, fingerprint)
    elseif kind == STEP_REMOVE then
      call('ZREM', key, hash .. id .. ticket .. fingerprint)
      work = work + 1
    else
      forget(key, id .. ticket)
    end
    answers[#answers + 1], at, key_at = answer, after, key_at + keys
  end
end

local done, problem = pcall(carry_out)
if #recencies > 0 then  -- also after an error: what was opened has to be closed one day
  call('ZADD', recency, unpack(recencies))
  if #expiries > 0 then call('ZADD', expiry, unpack(expiries)) end
  for i = 3, 5 do renew(KEYS[i]) end
end
if not done then error(problem, 0) end
write_counters()
return answers
