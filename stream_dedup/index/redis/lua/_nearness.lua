-- How near two things are: fingerprints by the bits in which they differ, sketches by what they share.
--
-- Each is asked in two steps, as one is held against many: f(one) gives a function of the other.

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

-- Bits set in what bxor returned (a signed number).
local function bits(x)
  local a = x % 256
  x = (x - a) / 256
  local b = x % 256
  x = (x - b) / 256
  local c = x % 256
  return BITS[a] + BITS[b] + BITS[c] + BITS[(x - c) / 256 % 256]
end

-- Bytes as 32-bit words: a format for struct.
local function words(length)
  local left = length % 4
  return '>' .. string.rep('I4', (length - left) / 4) .. (left > 0 and 'I' .. left or '')
end

-- In how many bits bytes of a length, from a place on, differ from one query's.
local function distances(length, from)
  local format = words(length)
  local count = math.ceil(length / 4)
  if count == 2 then
    return function(bytes)
      local q1, q2 = unpack_(format, bytes, from)
      return function(other)
        local o1, o2 = unpack_(format, other, from)
        return bits(bxor(q1, o1)) + bits(bxor(q2, o2))
      end
    end
  end
  return function(bytes)
    local q = {unpack_(format, bytes, from)}
    return function(other)
      local o = {unpack_(format, other, from)}
      local distance = 0
      for i = 1, count do distance = distance + bits(bxor(q[i], o[i])) end
      return distance
    end
  end
end

-- How much two sketches have in common (see clustering/linkage.py).
local SKETCH = 64
local function similarity_to(sketch)
  local held, size = {}, #sketch / 8
  for i = 1, #sketch, 8 do held[sub(sketch, i, i + 7)] = true end
  return function(other)
    if other == sketch then return 1 end
    local others = #other / 8
    if size < SKETCH and others < SKETCH then
      local shared = 0
      for i = 1, #other, 8 do
        if held[sub(other, i, i + 7)] then shared = shared + 1 end
      end
      return shared / (size + others - shared)
    end
    -- One of them may have been cut: the least of the union are the sample.
    local i, j, seen, shared = 1, 1, 0, 0
    while seen < SKETCH and (i <= #sketch or j <= #other) do
      local order
      if i > #sketch then order = 1
      elseif j > #other then order = -1
      else
        local a, b = unpack_('>I4I4', sketch, i)
        local c, d = unpack_('>I4I4', other, j)
        order = a < c and -1 or a > c and 1 or b < d and -1 or b > d and 1 or 0
      end
      if order == 0 then shared = shared + 1 end
      if order <= 0 then i = i + 8 end
      if order >= 0 then j = j + 8 end
      seen = seen + 1
    end
    return shared / seen
  end
end

local function before(one, other)  -- ids, as the numbers they are
  local a, b = unpack_('>I4I4', one)
  local c, d = unpack_('>I4I4', other)
  return a < c or (a == c and b < d)
end

