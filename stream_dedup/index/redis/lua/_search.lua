-- What resolve.lua needs for both kinds of fingerprints: the rules, the work of the call, the order of
-- clusters. _simhash.lua or _bands.lua follows it, either with these:
--   IS_BANDS               which of the two it is
--   distances(length)      f(one) returns a function of the other, as one fingerprint is compared with many
--   similarity_to(sketch, least)  likewise what two sketches have in common; 0 if that is too little
--   entries_of_tables(q)   what the tables hold near a query: the least distance of each cluster, the
--                          clusters by distance, whether some were left out, and a test of clusters
--   write_members(q, id, renewed)  insert a query for a cluster; the slices' times to live need not be
--                          renewed if `renewed`
--   fingerprint_of(c)      the fingerprint of a cluster

local MATCHING_FIELDS = unpack_bytes(MATCHING, ARGV[3])
local work = 0  -- of this call, in commands
local bxor, band, bor = bit.bxor, bit.band, bit.bor

-- Whether a round has renewed the times to live of all slices lately (see maintenance.py), so that those that
-- exist have at least half of it left. Set by resolve.lua.
local all_renewed

-- The shapes of which combinations may be listed (see _words.lua): a bit for each number of shapes, '' for
-- none. Most patterns have another one, and are not looked for. Bits are never cleared. Set by resolve.lua.
local listed_shapes

-- Work that searches may still do with what is near: they note the entries, load the clusters and verify
-- them. Each query adds the same, and what one does not need is left for those after it. So a line in a
-- crowd is compared with all of it now and then, but many such lines cost a few times as much as others
-- do, not thirty times.
local allowance, cut_by_work = 0, false

-- Whether an id is less than another, both as numbers.
local function before(one, other)
  local a, b = unpack_bytes(ID_WORDS, one)
  local c, d = unpack_bytes(ID_WORDS, other)
  return a < c or (a == c and b < d)
end

local function older(one, other)
  if one[C_OPENED_US] ~= other[C_OPENED_US] then return one[C_OPENED_US] < other[C_OPENED_US] end
  return before(one.id, other.id)
end

-- Note an entry within k bits of a query: the least distance of each cluster, and clusters by distance.
local function note(id, distance, near, by_distance)
  local nearest = near[id]
  if distance <= k and (nearest == nil or distance < nearest) then
    near[id] = distance
    local ids = by_distance[distance]
    if ids then ids[#ids + 1] = id else by_distance[distance] = {id} end
  end
end

local function surely() return true end
