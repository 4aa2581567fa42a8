-- How near two fingerprints are (the bits in which they differ), and two sketches (what they share).
--
-- Each comparison has two steps, as one is compared with many: f(one) returns a function of the other.

local bxor = bit.bxor
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

-- Whether an id is less than another, both as numbers.
local function before(one, other)
  local a, b = unpack_bytes(ID_WORDS, one)
  local c, d = unpack_bytes(ID_WORDS, other)
  return a < c or (a == c and b < d)
end

