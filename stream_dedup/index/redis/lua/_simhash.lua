-- Simhash: how near two fingerprints are (the bits in which they differ), and two sketches (what they
-- share); and the search of the tables.
local IS_BANDS = false

local function fingerprint_of(c) return c[C_FINGERPRINT] end

local BITS = {[0] = 0,
  1,1,2,1,2,2,3,1,2,2,3,2,3,3,4,1,2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,1,
  2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,1,
  2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,2,
  3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,1,
  2,2,3,2,3,3,4,2,3,3,4,3,4,4,5,2,3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,2,
  3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,2,
  3,3,4,3,4,4,5,3,4,4,5,4,5,5,6,3,4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,3,
  4,4,5,4,5,5,6,4,5,5,6,5,6,6,7,4,5,5,6,5,6,6,7,5,6,6,7,6,7,7,8}

-- The number of bits set in a result of bxor (a signed number).
local function bits(x)
  local a = x % 256
  x = (x - a) / 256
  local b = x % 256
  x = (x - b) / 256
  local c = x % 256
  return BITS[a] + BITS[b] + BITS[c] + BITS[(x - c) / 256 % 256]
end

-- The format that unpacks so many bytes as 32-bit words.
local function words(length)
  local left = length % 4
  return '>' .. string.rep('I4', (length - left) / 4) .. (left > 0 and 'I' .. left or '')
end

-- The number of bits in which `length` bytes, beginning at `from`, differ from one query's.
local function distances(length, from)
  local format = words(length)
  local count = math.ceil(length / 4)
  if count == 2 then
    return function(bytes)
      local q1, q2 = unpack_bytes(format, bytes, from)
      return function(other)
        local o1, o2 = unpack_bytes(format, other, from)
        return bits(bxor(q1, o1)) + bits(bxor(q2, o2))
      end
    end
  end
  return function(bytes)
    local q = {unpack_bytes(format, bytes, from)}
    return function(other)
      local o = {unpack_bytes(format, other, from)}
      local distance = 0
      for i = 1, count do distance = distance + bits(bxor(q[i], o[i])) end
      return distance
    end
  end
end

-- How much two sketches have in common (see clustering/linkage.py); 0 if that is less than `least`,
-- which a few hashes show.
local SKETCH = 64
local function similarity_to(sketch, least)
  local held, size = {}, #sketch / SKETCH_HASH_BYTES
  for i = 1, #sketch, SKETCH_HASH_BYTES do held[sub(sketch, i, i + SKETCH_HASH_BYTES - 1)] = true end
  return function(other)
    if other == sketch then return 1 end
    local others = #other / SKETCH_HASH_BYTES
    if size < SKETCH and others < SKETCH then
      local shared = 0
      -- With s shared of a and b, s / (a + b - s) >= least means s >= least (a + b) / (1 + least).
      local may_miss = others - least * (size + others) / (1 + least) + 1e-6
      for i = 1, #other, SKETCH_HASH_BYTES do
        if held[sub(other, i, i + SKETCH_HASH_BYTES - 1)] then
          shared = shared + 1
        else
          may_miss = may_miss - 1
          if may_miss < 0 then return 0 end
        end
      end
      return shared / (size + others - shared)
    end
    -- One of them may have been cut off: the smallest hashes of the union are the sample.
    local i, j, seen, shared = 1, 1, 0, 0
    local may_miss = SKETCH * (1 - least) + 1e-6
    while seen < SKETCH and (i <= #sketch or j <= #other) do
      local order
      if i > #sketch then order = 1
      elseif j > #other then order = -1
      else
        local a, b = unpack_bytes(ID_WORDS, sketch, i)
        local c, d = unpack_bytes(ID_WORDS, other, j)
        order = a < c and -1 or a > c and 1 or b < d and -1 or b > d and 1 or 0
      end
      if order == 0 then shared = shared + 1 end
      if order <= 0 then i = i + SKETCH_HASH_BYTES end
      if order >= 0 then j = j + SKETCH_HASH_BYTES end
      seen = seen + 1
      if seen - shared > may_miss then return 0 end
    end
    return shared / seen
  end
end

local VERIFYING_WORK, entries_of_tables = 0.5, nil
do  -- what only the search needs: Lua has room for 200 names
  -- The bytes of a member behind its prefix: the other bits of the fingerprint.
  local rest_at, rest_bytes = prefix_bytes + 1, member_bytes - ID_BYTES - prefix_bytes
  if rest_bytes == 0 then rest_at, rest_bytes = prefix_bytes, 1 end  -- the prefix holds all bits
  local first_bytes = '>I' .. math.min(rest_bytes, 3)
  local rest_from = distances(rest_bytes, rest_at)

  -- A whole number of at least n, as text; few different texts, as writing them takes time.
  local texts = {}
  local function at_least(n)
    local step = math.ceil(n / 128)
    if not texts[step] then texts[step] = string.format('%d', step * 128) end
    return texts[step]
  end

  local ENTRY_WORK = 0.3

  -- Of a slice that holds a crowd, a part is read first: the search often ends with it, and a thousand
  -- entries that nobody looks at take longer than all else that an event costs.
  local FIRST_READ = 128
  local AFTER = string.rep('\255', 32)  -- behind all members that begin with a prefix

  function entries_of_tables(q)
    local near, by_distance = {}, {}
    local left, truncated = max_candidates, false
    local near_left = math.floor(allowance / 2 / ENTRY_WORK)
    for t = 1, tables do
      local member = sub(q.members, (t - 1) * member_bytes + 1, t * member_bytes)
      local prefix = '[' .. sub(member, 1, prefix_bytes)
      local from, mine, at, wanted = nil, nil, 0, FIRST_READ
      repeat
        local found = call('ZRANGE', KEYS[q.at + t], prefix, prefix .. AFTER, 'BYLEX', 'LIMIT',
          at == 0 and '0' or string.format('%d', at), at_least(wanted))
        local count = #found
        local all_read = count < wanted
        at, wanted = at + count, left + 1 - count
        if count > left then count, truncated = left, true end
        left = left - count
        mine = mine or count > 0 and unpack_bytes(first_bytes, member, rest_at)
        for i = 1, count do
          -- Most differ in too many of the first bytes. This runs most often of all, so it calls few
          -- functions.
          local x = bxor(mine, (unpack_bytes(first_bytes, found[i], rest_at)))
          local a = x % 256
          x = (x - a) / 256
          local b = x % 256
          if BITS[a] + BITS[b] + BITS[(x - b) / 256] <= k then
            near_left = near_left - 1
            if near_left < 0 then break end
            from = from or rest_from(member)
            note(sub(found[i], -ID_BYTES), from(found[i]), near, by_distance)
          end
        end
      until all_read or wanted <= 0 or near_left < 0
      if near_left < 0 then truncated, cut_by_work = true, true end
      if left == 0 or near_left < 0 then  -- entries of the other tables count as left out
        truncated = truncated or t < tables
        break
      end
    end
    work = work + tables + (max_candidates - left) * ENTRY_WORK
    allowance = math.min(allowance, allowance / 2 + near_left * ENTRY_WORK)
    return near, by_distance, truncated, surely
  end
end

local members_format = string.rep('c' .. member_bytes, tables)
local function write_members(q, id, renewed)
  local members = {unpack_bytes(members_format, q.members)}
  for t = 1, tables do
    local member, slice = members[t], KEYS[q.at + t]
    if id ~= q.id then member = sub(member, 1, -1 - ID_BYTES) .. id end
    call('ZADD', slice, '0', member)
    if not renewed then renew(slice) end
  end
  work = work + tables * (renewed and 0.9 or 1.2)
end
