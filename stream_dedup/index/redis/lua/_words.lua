-- The posting lists of the one-off index: see index/memory/postings.py, which this repeats.
--
-- A posting list is a field of a slice (r:<slice>): its postings, a POSTING each. Lists are known only
-- here, as clusters are: their keys share the hash tag. What a call reads is kept, packed as it is
-- stored, and written at the end, once. Lists of new patterns are not even read into tables: the
-- caller has packed what is to be written (see one_off.py), and as long as nothing else can look at
-- them, they wait.

local changed_keys = {}  -- clusters whose posting keys have changed
local slice_number, has_key, has_room
local unpack_pattern, find_fitting, combine, find_by_words, ready_slots, show_slots, learn_slots, keys_of_new
local note_words, note_together, note_assumed
local move_postings, remove_postings, write_postings

do  -- a script has room for 200 local names
  local FIELD_WORK = 0.3  -- of a field more in a command

  local POSTING_SLICES = SHARD .. 'r:'
  local lists_kept, changed_lists = {}, {}

  -- The upper half of a group's hash times GROUP_FACTOR, modulo 2^64; in parts that a double holds exactly.
  local spreads = {}
  local function spread_of(group_hash)
    local spread = spreads[group_hash]
    if spread then return spread end
    local high, low = unpack_bytes(GROUP_WORDS, group_hash)
    local carried = math.floor((high * GROUP_FACTOR_LOW + math.floor(low * GROUP_FACTOR_LOW / 65536)) / 65536)
    spread = (high * GROUP_FACTOR_HIGH % 65536 * 65536 + low * GROUP_FACTOR_HIGH + carried) % 4294967296
    spreads[group_hash] = spread
    return spread
  end

  -- The slice of a hash: its first bits, shifted by the hash of the group (see codec.py).
  function slice_number(hash, group_hash, bits)
    local high = bxor((unpack_bytes(ID_WORDS, hash)), spread_of(group_hash)) % 4294967296
    return math.floor(high / 2 ^ (32 - bits))
  end

  -- The slice of a key's list: that of its first bits, which the keys of a pattern share (see one_off.py).
  local slices, slice_bytes = {}, math.max(1, math.ceil(posting_bits / 8))
  local function slice_of(key, group_hash)
    local of_group = slices[group_hash]
    if not of_group then
      of_group = {}
      slices[group_hash] = of_group
    end
    local first = sub(key, 1, slice_bytes)
    local slice = of_group[first]
    if not slice then
      slice = POSTING_SLICES .. slice_number(key, group_hash, posting_bits)
      of_group[first] = slice
    end
    return slice
  end

  local function make_list(field, slice, stored)
    local list = {field = field, key = sub(field, GROUP_BYTES + 1), slice = slice, stored = stored,
      packed = stored or ''}
    lists_kept[field] = list
    return list
  end

  -- Queries whose patterns are new, and whose lists wait to be written.
  local waiting_patterns = {}
  local PATTERNS = ARGV[7]

  -- Unpack the keys of a query's pattern; returns where the next ones begin.
  function unpack_pattern(q, at)
    local PATTERN_FIELDS, keys_at = unpack_bytes(PATTERN, PATTERNS, at)
    q.words, q.counted, q.plain, q.slices = words, counted, plain == 1, slices
    q.group_hash = sub(q.field, 1, GROUP_BYTES)
    q.keys_at, q.places_at = keys_at + LISTS_BYTES, keys_at + LISTS_BYTES + keys * KEY_BYTES
    return q.keys_at + bytes
  end

  local AT_ONCE, MAX_FIELDS = 32, 2000  -- slices; fields and values, as a call takes some 8,000 values

  -- Whether all slices exist, of a list from one place to another.
  local function all_exist(slices, from, to)
    return call('EXISTS', unpack(slices, from, to)) == to - from + 1
  end

  local fields_formats, pairs_formats = {}, {}  -- by the number of keys
  local function fields_at(at, count)
    local format = fields_formats[count]
    if not format then
      format = string.rep('c' .. PATTERN_KEY_POSTING_AT - 1
        .. string.rep('x', PATTERN_KEY_BYTES - PATTERN_KEY_POSTING_AT + 1), count)
      fields_formats[count] = format
    end
    return {unpack_bytes(format, PATTERNS, at)}
  end

  local function pairs_at(at, count)
    local format = pairs_formats[count]
    if not format then
      format = string.rep('c' .. PATTERN_KEY_POSTING_AT - 1 .. 'c' .. PATTERN_KEY_AROUND_AT - PATTERN_KEY_POSTING_AT
        .. string.rep('x', PATTERN_KEY_BYTES - PATTERN_KEY_AROUND_AT + 1), count)
      pairs_formats[count] = format
    end
    return unpack({unpack_bytes(format, PATTERNS, at)}, 1, 2 * count)
  end

  local function write_patterns()
    if #waiting_patterns == 0 then return end
    local slices, at, counts = {}, {}, {}
    for i = 1, #waiting_patterns do
      local places = waiting_patterns[i].places
      for p = 1, #places, 3 do
        local n = #slices + 1
        slices[n], at[n], counts[n] = places[p], places[p + 1], places[p + 2]
      end
    end
    waiting_patterns = {}
    for from = 1, #slices, AT_ONCE do
      local to = math.min(from + AT_ONCE - 1, #slices)
      local exist = all_renewed and all_exist(slices, from, to)
      for i = from, to do
        call('HSET', slices[i], pairs_at(at[i], counts[i]))
        if not exist then renew(slices[i]) end
      end
    end
  end

  -- Another list than those of the query's own pattern. From then on any list may have changed.
  local any_changed = false
  local function list_of(key, group_hash)
    write_patterns()
    any_changed = true
    local field = group_hash .. key
    local list = lists_kept[field]
    if list then return list end
    work = work + 1
    local slice = slice_of(key, group_hash)
    return make_list(field, slice, call('HGET', slice, field))
  end

  -- Read the posting lists of a pattern, those of a slice at once. Whether there are any.
  local function read_lists(q)
    if not q.plain then write_patterns() end
    local places, at, exist = {}, q.places_at, false
    for i = 1, q.slices do
      local PATTERN_SLICE_FIELDS = unpack_bytes(PATTERN_SLICE, PATTERNS, at)
      local slice, fields = POSTING_SLICES .. digits, fields_at(first_at, keys)
      places[3 * i - 2], places[3 * i - 1], places[3 * i] = slice, first_at, keys
      local stored = call('HMGET', slice, unpack(fields, 1, keys))
      work = work + 1 + keys * FIELD_WORK
      for j = 1, keys do
        local known = lists_kept[fields[j]]
        if known or stored[j] then
          exist = true
          if not known then make_list(fields[j], slice, stored[j]) end
        end
      end
      at = first_at + keys * PATTERN_KEY_BYTES
    end
    q.places = places
    return exist
  end

  -- The slots of a pattern, and their lists.
  local function read_slots(q)
    local slots, places = {}, q.places
    for i = 1, #places, 3 do
      local at = places[i + 1]
      for _ = 1, places[i + 2] do
        local PATTERN_KEY_FIELDS = unpack_bytes(PATTERN_KEY, PATTERNS, at)
        local list = lists_kept[field] or make_list(field, places[i])
        if place == 0 then
          q.own_list = list
        else
          slots[place] = {value = sub(posting, POSTING_VALUE_AT, POSTING_ID_AT - 1), around = around,
            number = byte(posting) - FIRST_NUMBER, list = list}
        end
        at = at + PATTERN_KEY_BYTES
      end
    end
    q.slots = slots
  end

  local function change(list, packed)
    if not changed_lists[list.field] then work = work + FIELD_WORK end
    changed_lists[list.field] = list
    list.packed = packed
  end

  local function unpack_posting(packed, at)
    local POSTING_FIELDS = unpack_bytes(POSTING, packed, at)
    local first = number >= FIRST_NUMBER
    return {number = first and number - FIRST_NUMBER or number, value = value, id = id, first = first}
  end

  -- The postings of a number. Lists may be full of others: those are not unpacked.
  local NONE = {}
  local function postings_of(list, number)
    local packed = list.packed
    if packed == '' then return NONE end
    local postings = {}
    for at = 1, #packed, POSTING_BYTES do
      local found = byte(packed, at)
      if found == number or found == number + FIRST_NUMBER then postings[#postings + 1] = unpack_posting(packed, at) end
    end
    return postings
  end

  local function is_named(list, id)
    local packed = list.packed
    local at = string.find(packed, id, 1, true)
    while at and (at - POSTING_ID_AT) % POSTING_BYTES ~= 0 do at = string.find(packed, id, at + 1, true) end
    return at ~= nil
  end

  -- Keep the postings for which a test holds.
  local function filter(list, holds)
    local packed, kept = list.packed, {}
    for at = 1, #packed, POSTING_BYTES do
      if holds(unpack_posting(packed, at)) then kept[#kept + 1] = sub(packed, at, at + POSTING_BYTES - 1) end
    end
    change(list, table.concat(kept))
  end

  local function change_keys(c, keys)
    c[C_POSTING_KEYS], c.is_changed_text = keys, true
    changed_keys[c.id] = c
  end

  -- Whether a posting list names a cluster. Of many keys a set is made, once.
  local MANY_KEYS_BYTES = 32 * KEY_BYTES
  function has_key(c, key)
    local keys = c[C_POSTING_KEYS]
    if #keys > MANY_KEYS_BYTES then
      if c.keys_of_set ~= keys then
        local set = {}
        for at = 1, #keys, KEY_BYTES do set[sub(keys, at, at + KEY_BYTES - 1)] = true end
        c.key_set, c.keys_of_set = set, keys
        work = work + #keys / KEY_BYTES * 0.1
      end
      return c.key_set[key] == true
    end
    local at = string.find(keys, key, 1, true)
    while at and (at - 1) % KEY_BYTES ~= 0 do at = string.find(keys, key, at + 1, true) end
    return at ~= nil
  end

  -- Note that a list names a cluster. It has the key already if the list has dropped it meanwhile.
  local function add_key(c, key)
    if has_key(c, key) then return end
    local keys = c[C_POSTING_KEYS]
    change_keys(c, keys .. key)
    if c.keys_of_set == keys and c.key_set then
      c.key_set[key], c.keys_of_set = true, c[C_POSTING_KEYS]
    end
  end

  -- Remove from a list what named a cluster before it was opened again, and is not purged yet.
  local function forget_former(list, c)
    if c[C_BEFORE] ~= OPEN and is_named(list, c.id) and not has_key(c, list.key) then
      filter(list, function(posting) return posting.id ~= c.id end)
    end
  end

  function has_room(c, more)
    return #c[C_POSTING_KEYS] / KEY_BYTES + more <= MAX_POSTING_LISTS
  end

  local function is_full(list)
    return #list.packed >= MAX_POSTINGS * POSTING_BYTES
  end

  -- Add a posting; in a full list, in place of the oldest ones that do not count for the event. `live` also
  -- tells what was not looked at.
  local function put(list, c, number, value, first, live)
    local packed = list.packed
    while is_full(list) do
      local posting = unpack_posting(packed, 1)
      local owner, is_unknown = live(posting, list)
      if owner or is_unknown then return end
      packed = sub(packed, POSTING_BYTES + 1)
      change(list, packed)
    end
    add_key(c, list.key)
    change(list, packed .. pack_bytes(POSTING, number + (first and FIRST_NUMBER or 0), value, c.id))
  end

  local function wanted_values(around)
    return around > FEW_AROUND and learn or (around == FEW_AROUND and 2 or 4) * learn
  end

  -- Whether one of two patterns may have a word more: see clustering/learning.py.
  -- `counted` of the other words count; `value` is that of the word, or nil: whatever it is.
  local function may_be_missing(number, words, counted, gaps, value)
    if number == 0 or number >= REPEATED then return false end
    if number < GAP_BITS and band(gaps, 2 ^ number) ~= 0 then
      return words - 1 >= LEAST_COMMON and counted >= LEAST_COUNTED
        and not (value and byte(value) >= BESIDE_GAP / 65536)
    end
    return counted >= MANY_COUNTED and number < words - 1
  end

  local function oldest(best, c)
    if c and (best == nil or older(c, best)) then return c end
    return best
  end

  -- Whether the pattern of a cluster shows that a word of it varies.
  local function varies(c, number)
    return math.floor(c[C_LEARNED] / 2 ^ (number % REPEATED)) % 2 == 1
  end

  -- Let the pattern show it.
  local function show(c, number)
    if not varies(c, number) then
      c[C_LEARNED], c[C_LEARNED_WORDS] = c[C_LEARNED] + 2 ^ (number % REPEATED), c[C_LEARNED_WORDS] + 1
      c.is_changed, c.is_changed_text = true, true
    end
  end

  local function live_postings(list, number, live)
    local postings, found = {}, postings_of(list, number)
    for i = 1, #found do
      if live(found[i], list) then postings[#postings + 1] = found[i] end
    end
    return postings
  end

  -- Combinations of words that vary together: see fingerprint/combinations.py. Their lists are of other keys
  -- than those of patterns, so what waits to be written does not matter here.

  local SUMS = 2 ^ SUM_BITS
  local SAID_BYTES = POSTING_ID_AT - 1  -- number and value of a posting
  -- In commands: of a pattern whose shape is listed, of a combination that it is tried with, of values noted
  -- beside one, of a posting that is read there.
  local WORK = {shape = 5, tried = 3, noted = 1, read = 0.2}
  local NO_VALUE = string.rep('\0', POSTING_VALUE_BYTES)

  local function number_of(value)
    local high, middle, low = byte(value, 1, POSTING_VALUE_BYTES)
    return (high * 256 + middle) * 256 + low
  end

  -- The number of a pattern's shape: the place of its byte in a list of bits, and that of its bit, as a factor.
  local SHAPES_BYTES = SHAPE_NUMBERS / 8
  local function shape_of(q)
    local at = q.keys_at - LISTS_BYTES
    local first, second = byte(PATTERNS, at, at + 1)
    return first * 2 + (second < 128 and 1 or 2), 2 ^ band(second, 7)
  end

  -- Where a pattern has placeholders (its shape says it, before one byte), as the value of a posting.
  local function gaps_of(q)
    local at = q.keys_at - LISTS_BYTES + KEY_BYTES - 1 - POSTING_VALUE_BYTES
    local high, middle, low = byte(PATTERNS, at, at + POSTING_VALUE_BYTES - 1)
    return string.char(high % 2 ^ (GAP_BITS - 16), middle, low)
  end

  local function note_shape(q)
    local at, bits = shape_of(q)
    if listed_shapes == '' then listed_shapes = string.rep('\0', SHAPES_BYTES) end
    local held = byte(listed_shapes, at)
    if band(held, bits) ~= 0 then return end
    listed_shapes = sub(listed_shapes, 1, at - 1) .. string.char(held + bits) .. sub(listed_shapes, at + 1)
    call('HSET', META, 'shapes', listed_shapes)
    work = work + 1
  end

  local function value_of(number)
    return string.char(math.floor(number / 65536), math.floor(number / 256) % 256, number % 256)
  end

  -- The words of a pattern that may vary, and its slots.
  local FACTORS = WORD_FACTORS
  local function words_of(q)
    if q.varying then return q.varying end
    local words, slots, repeated, at, by_number = {}, {}, 0, q.places_at, {}
    local high, middle, low = unpack_bytes(COMBINED_KEY, PATTERNS, q.keys_at - LISTS_BYTES)
    local sum = middle * 4294967296 + low
    for _ = 1, q.slices do
      local PATTERN_SLICE_FIELDS = unpack_bytes(PATTERN_SLICE, PATTERNS, at)
      at = first_at
      for _ = 1, keys do
        local PATTERN_KEY_FIELDS = unpack_bytes(PATTERN_KEY, PATTERNS, at)
        at = at + PATTERN_KEY_BYTES
        if place > 0 then
          local number = byte(posting) - FIRST_NUMBER
          local slot = {number = number, posting = posting, bits = assigned * ALL_ASSIGNED, amount = 0, product = 0,
            said = sub(posting, 1, SAID_BYTES), value = sub(posting, POSTING_VALUE_AT, POSTING_ID_AT - 1)}
          if number < COMBINED_WORDS then slot.bits = slot.bits + 2 ^ number end
          slots[place] = slot
          if number < REPEATED then
            slot.amount = number_of(slot.value)
            slot.product = slot.amount * FACTORS[number + 1] % SUMS
            sum = (sum + slot.product) % SUMS
            words[#words + 1], by_number[number] = slot, slot
          elseif number < REPEATED + COMBINED_WORDS then
            repeated = repeated + 2 ^ (number - REPEATED)
          end
        end
      end
    end
    q.varying = {words = words, slots = slots, by_number = by_number, repeated = repeated, count = q.words, high = high,
      sum = sum}
    return q.varying
  end

  -- The words of a combination: which numbers, how many, and their part of the sum.
  local function taken_by(p, combination)
    local taken, count, part = {}, 0, 0
    for i = 1, #p.words do
      local word = p.words[i]
      if band(combination, word.bits) ~= 0 then
        taken[word.number], count, part = true, count + 1, part + word.product
      end
    end
    return taken, count, part
  end

  -- The number of the first word that is left.
  local function anchor_of(taken)
    local number = 0
    while taken[number] do number = number + 1 end
    return number
  end

  local function are_left(p, taken, count)
    return p.count - count >= LEAST_LEFT and anchor_of(taken) < ANCHORS
  end

  local function amount_at(p, number)
    local word = p.by_number[number]
    return word and word.amount or 0
  end

  local function is_possible(p, combination)
    local taken, count = taken_by(p, combination)
    return are_left(p, taken, count)
  end

  -- The field of the pattern without the words of a combination.
  local function field_without(q, p, combination, taken, part)
    local last = p.count - 1
    while taken[last] do last = last - 1 end
    local sum = (p.sum + combination * COMBINATION_FACTOR % SUMS - part) % SUMS
    local first_part, last_part = amount_at(p, anchor_of(taken)) * FACTORS[1] % 65536, amount_at(p, last) * FACTORS[2] % 65536
    return q.group_hash .. pack_bytes(COMBINED_KEY, (p.high + first_part + last_part) % 65536,
      math.floor(sum / 4294967296), sum % 4294967296)
  end

  local function combined_field(q, p, combination)
    local taken, _, part = taken_by(p, combination)
    return field_without(q, p, combination, taken, part)
  end

  -- The field under which the combinations of an anchor are listed.
  local FIELD_BYTES = GROUP_BYTES + KEY_BYTES
  local function list_field(q, anchor)
    local at = q.keys_at - LISTS_BYTES + LISTS_FIELDS_AT - 1 + anchor * FIELD_BYTES
    return sub(PATTERNS, at, at + FIELD_BYTES - 1)
  end

  -- The combination of the words that a cluster's pattern shows as variable; 0 if it cannot be one.
  local function combination_of(p, learned)
    local words, others = learned % ALL_ASSIGNED, math.floor(learned / ALL_ASSIGNED)
    local all_assigned = 2 ^ (ASSIGNED - REPEATED) / ALL_ASSIGNED
    if (others ~= 0 and others ~= all_assigned) or band(words, p.repeated) ~= 0 then return 0 end
    local combination = words + (others ~= 0 and ALL_ASSIGNED or 0)
    return combination > 0 and is_possible(p, combination) and combination or 0
  end

  -- The slots that may vary beside the words of a combination: of each the longer combination, and its field.
  local function slots_beside(q, p, combination)
    local taken, count, part = taken_by(p, combination)
    local slots, longer, fields, are_assigned = {}, {}, {}, combination >= ALL_ASSIGNED
    for number in pairs(taken) do are_assigned = are_assigned or p.by_number[number].bits >= ALL_ASSIGNED end
    for i = 1, #p.slots do
      local slot = p.slots[i]
      local number, field = slot.number, nil
      if number == ASSIGNED then
        if not are_assigned then
          local more = combination + ALL_ASSIGNED
          local all, all_count, all_part = taken_by(p, more)
          if are_left(p, all, all_count) then longer[#longer + 1], field = more, field_without(q, p, more, all, all_part) end
        end
      elseif number < COMBINED_WORDS and not taken[number] then
        taken[number] = true
        if are_left(p, taken, count + 1) then
          local more = combination + 2 ^ number
          longer[#longer + 1], field = more, field_without(q, p, more, taken, part + slot.product)
        end
        taken[number] = nil
      end
      if field then slots[#slots + 1], fields[#fields + 1] = slot, field end
    end
    return slots, longer, fields
  end

  -- The lists of fields: of a slice at once.
  local function lists_at(fields, group_hash)
    local found, missing, slices = {}, {}, {}
    for i = 1, #fields do
      local field = fields[i]
      found[i] = lists_kept[field]
      if not found[i] then
        local slice = slice_of(sub(field, GROUP_BYTES + 1), group_hash)
        local places = missing[slice]
        if not places then
          places = {}
          missing[slice], slices[#slices + 1] = places, slice
        end
        places[#places + 1] = i
      end
    end
    for i = 1, #slices do
      local places, wanted = missing[slices[i]], {}
      for j = 1, #places do wanted[j] = fields[places[j]] end
      local stored = call('HMGET', slices[i], unpack(wanted))
      work = work + 1 + #wanted * FIELD_WORK
      for j = 1, #wanted do
        found[places[j]] = lists_kept[wanted[j]] or make_list(wanted[j], slices[i], stored[j])
      end
    end
    return found
  end

  -- Whether a slot is one of a combination.
  local function is_in(combination, number)
    if number == ASSIGNED then return combination >= ALL_ASSIGNED end
    return number < COMBINED_WORDS and band(combination, 2 ^ number) ~= 0
  end

  -- All variables of two, in halves that fit in 32 bits.
  local function either(one, other)
    return bor(math.floor(one / ALL_ASSIGNED), math.floor(other / ALL_ASSIGNED)) * ALL_ASSIGNED
      + bor(one % ALL_ASSIGNED, other % ALL_ASSIGNED)
  end

  -- Whether a cluster that shows these variables merges with the one that fits. So it does where its own and
  -- theirs can be no combination.
  local function may_merge(q, learned)
    if not q.shown then return true end
    local all = either(q.shown, learned)
    return all == q.shown or combination_of(words_of(q), all) == 0
  end

  -- Likewise one that has a posting for a slot.
  local function takes(q, slot, c)
    return may_merge(q, either(2 ^ (slot.number % REPEATED), c[C_LEARNED]))
  end

  do  -- likewise
    local counts_of_bits = {}
    local function count_bits(combination)
      local count, rest = counts_of_bits[combination], combination
      if count then return count end
      count = 0
      while rest > 0 do rest, count = band(rest, rest - 1), count + 1 end
      counts_of_bits[combination] = count
      return count
    end

    -- The words of a combination, as `combination_of` takes them.
    local function learned_of(combination)
      if combination < ALL_ASSIGNED then return combination end
      return combination - ALL_ASSIGNED + 2 ^ (ASSIGNED - REPEATED)
    end

    -- Leave out the clusters that stay apart, of those that a pattern fits.
    local function narrow(q)
      local first = 1  -- the one of the most words
      while first <= #q.together and #q.together[first] == 0 do first = first + 1 end
      if first > #q.together then return end
      local shown = learned_of(q.combinations[first])
      for j = 1, #q.together[first] do shown = either(shown, q.together[first][j].cluster[C_LEARNED]) end
      q.shown = shown
      for i = first + 1, #q.together do
        local learned, kept = learned_of(q.combinations[i]), {}
        for j = 1, #q.together[i] do
          local posting = q.together[i][j]
          if may_merge(q, either(learned, posting.cluster[C_LEARNED])) then kept[#kept + 1] = posting end
        end
        q.together[i] = kept
      end
    end

    -- Find the combinations that a pattern may have, and of each the postings of the clusters that it fits.
    local function find_together(q, live)
      q.combinations, q.together, q.fits = NONE, NONE, false
      if listed_shapes == '' then return end
      local at, bits = shape_of(q)
      if band(byte(listed_shapes, at), bits) == 0 then return end
      local lists = {}
      for anchor = 1, ANCHORS do lists[anchor] = list_field(q, anchor - 1) end
      lists = lists_at(lists, q.group_hash)
      local listed, most = {}, 0  -- combinations by their words, each with the list and the place in it
      for i = 1, #lists do
        local packed = lists[i].packed
        for at = 1, #packed, POSTING_BYTES do
          if byte(packed, at) == COMBINATION then
            local combination = number_of(sub(packed, at + POSTING_VALUE_AT - 1, at + SAID_BYTES - 1))
            local words = count_bits(combination)
            local of_words = listed[words] or {}
            listed[words], most = of_words, math.max(most, words)
            of_words[#of_words + 1], of_words[#of_words + 2], of_words[#of_words + 3] = combination, i, at
          end
        end
      end
      if most == 0 then return end
      local p, combinations, fields, tried = words_of(q), {}, {}, {}
      for words = most, 1, -1 do
        local of_words = listed[words] or NONE
        for i = 1, #of_words, 3 do
          local combination, list = of_words[i], lists[of_words[i + 1]]
          if #fields < MAX_COMBINATIONS and not tried[combination] then
            local taken, count, part = taken_by(p, combination)
            if are_left(p, taken, count) and live(unpack_posting(list.packed, of_words[i + 2]), list) then
              tried[combination] = true
              combinations[#combinations + 1], fields[#fields + 1] = combination, field_without(q, p, combination, taken, part)
            end
          end
        end
      end
      work = work + WORK.shape + #fields * WORK.tried
      if #fields == 0 then return end
      q.combinations, q.together = combinations, {}
      local lists = lists_at(fields, q.group_hash)
      for i = 1, #lists do
        local list, found = lists[i], {}
        if #live_postings(list, OWN, live) > 0 then
          for at = 1, #list.packed, POSTING_BYTES do
            local posting = unpack_posting(list.packed, at)
            posting.cluster = live(posting, list)
            if posting.cluster then found[#found + 1] = posting end
          end
          q.fits = true
        end
        q.together[i] = found
      end
      narrow(q)
    end

    local function oldest_together(q)
      local best
      for i = 1, #q.together do
        for j = 1, #q.together[i] do best = oldest(best, q.together[i][j].cluster) end
      end
      return best
    end

    -- The cluster whose pattern a pattern fits by words that vary together.
    function find_fitting(q, live)
      find_together(q, live)
      return oldest_together(q)
    end

    -- The cluster of a pattern, and whether one of its own words is a known variable. `live` returns the
    -- cluster that a posting names, if it takes the event.
    function find_by_words(q, live)
      local best
      local exist = read_lists(q)
      find_together(q, live)
      if not exist and not q.fits then return nil, false end
      read_slots(q)
      local own_list, own = q.own_list, {}
      for at = 1, #own_list.packed, POSTING_BYTES do own[#own + 1] = unpack_posting(own_list.packed, at) end
      for i = 1, #own do
        if own[i].value == LEARNED then best = oldest(best, live(own[i], own_list)) end
      end
      if best then return best, false end
      local any = #own > 0
      for i = 1, #q.slots do
        local slot = q.slots[i]
        local list = slot.list
        any = any or list.packed ~= ''
        local postings = postings_of(list, slot.number)
        for j = 1, #postings do
          local c = postings[j].value == LEARNED and live(postings[j], list)
          if c and takes(q, slot, c) then best = oldest(best, c) end
        end
      end
      best = oldest(best, oldest_together(q))
      if best then return best, true end
      if not any then return nil, false end
      if q.words >= LEAST_SAME then
        for i = 1, #own do
          local c = own[i].number == OWN and live(own[i], own_list)
          if c then return c, false end
        end
      end
      local gaps = number_of(gaps_of(q))
      for i = 1, #own do
        if own[i].first and may_be_missing(own[i].number, q.words + 1, q.counted, gaps, own[i].value) then
          best = oldest(best, live(own[i], own_list))
        end
      end
      for i = 1, #q.slots do
        local slot = q.slots[i]
        if may_be_missing(slot.number, q.words, slot.around, ALL_GAPS) then
          local list = slot.list
          local postings = postings_of(list, OWN)
          for j = 1, #postings do
            local its_gaps = number_of(postings[j].value)
            if may_be_missing(slot.number, q.words, slot.around, its_gaps, slot.value) then
              best = oldest(best, live(postings[j], list))
            end
          end
          postings = postings_of(list, slot.number)
          for j = 1, #postings do
            local c = postings[j].first and live(postings[j], list)
            if c and varies(c, slot.number) then best = oldest(best, c) end
          end
        end
      end
      for i = 1, #own do  -- its pattern shows that the word may be missing
        local posting = own[i]
        local is_its = best and posting.id == best.id and posting.first
          and may_be_missing(posting.number, q.words + 1, q.counted, gaps, posting.value)
        if is_its and live(posting, own_list) then  -- else it is of a cluster that had this id before
          show(best, posting.number)
        end
      end
      return best, false
    end
  end

  -- Whether no other word than that of a slot varies in a cluster's pattern.
  local function shows_only(c, slot)
    return c[C_LEARNED] == 0 or c[C_LEARNED] == 2 ^ (slot.number % REPEATED)
  end

  -- The postings of a slot, of clusters that show no other variable.
  local function postings_alone(list, slot, live)
    local postings, found = {}, postings_of(list, slot.number)
    for i = 1, #found do
      local c = live(found[i], list)
      if c and shows_only(c, slot) then postings[#postings + 1] = found[i] end
    end
    return postings
  end

  -- Whether the slot's value is the last one that is wanted.
  local function completes(slot, postings)
    if #postings + 1 < wanted_values(slot.around) then return false end
    for i = 1, #postings do
      if postings[i].value == slot.value then return false end
    end
    return true
  end

  -- How many postings have another value, without those of closed clusters, which wait to be purged. What was
  -- not looked at counts.
  local function count_open(postings, value, list, live)
    local count = 0
    for i = 1, #postings do
      local posting = postings[i]
      if posting.value ~= LEARNED and posting.value ~= value then
        local owner, is_unknown = live(posting, list, true)
        if owner or is_unknown then count = count + 1 end
      end
    end
    return count
  end

  -- What an event's values bring about: the slots that are learned with them; the clusters found there, by their
  -- ids, whose patterns show these slots; those of them whose representative differs from the event in learned
  -- words alone, so that these slots are in its pattern; and the slots of words that vary together.
  function ready_slots(q, live, is_variable)
    if not q.slots then return {numbers = NONE, merging = {}, alike = NONE, together = NONE} end
    local numbers, merging, alike, together, count, keys, most = {}, {}, {}, {}, 0, 0, 0
    local ready = {numbers = numbers, merging = merging, alike = alike, together = together}
    -- Add clusters, unless they are too many for this event.
    local function merge_also(clusters)
      local all, all_keys, largest, fresh = count, keys, most, {}
      for i = 1, #clusters do
        local c = clusters[i]
        if not merging[c.id] and not fresh[c.id] then
          local its_keys = #c[C_POSTING_KEYS] / KEY_BYTES
          fresh[c.id], all, all_keys, largest = c, all + 1, all_keys + its_keys, math.max(largest, its_keys)
        end
      end
      if count > 0 and (all > MAX_MERGED or all_keys - largest > MAX_MOVED) then return false end
      count, keys, most = all, all_keys, largest
      for id, c in pairs(fresh) do merging[id] = c end
      return true
    end
    local combined = 0
    for i = 1, is_variable and #q.together or 0 do
      local postings = q.together[i]
      if #postings > 0 then combined = bor(combined, q.combinations[i]) end
      for j = 1, #postings do
        if not merge_also({postings[j].cluster}) then break end
        if postings[j].first then alike[postings[j].id] = true end
      end
    end
    if combined >= ALL_ASSIGNED then together[ASSIGNED], combined = true, combined - ALL_ASSIGNED end
    for number = 0, combined > 0 and COMBINED_WORDS - 1 or -1 do
      if band(combined, 2 ^ number) ~= 0 then together[number] = true end
    end
    for i = 1, #q.slots do
      local slot = q.slots[i]
      local list = slot.list
      local found = postings_of(list, slot.number)
      local known = together[slot.number] or found[1] and found[1].value == LEARNED
      if known or #found + 1 >= wanted_values(slot.around) then
        local postings = {}
        for j = 1, #found do
          local c = live(found[j], list)
          if c and takes(q, slot, c) and (known or shows_only(c, slot)) then postings[#postings + 1] = found[j] end
        end
        if #postings > 0 and (known or completes(slot, postings)) then
          if not known then
            local same = live_postings(list, OWN, live)
            for j = 1, #same do postings[#postings + 1] = same[j] end
          end
          local clusters = {}
          for j = 1, #postings do clusters[j] = live(postings[j], list) end
          -- If it is too much, this slot and those behind it are learned with a later value.
          if not merge_also(clusters) then break end
          numbers[slot.number] = true
          for j = 1, #postings do
            if postings[j].first and postings[j].number == slot.number then
              show(merging[postings[j].id], slot.number)
              alike[postings[j].id] = true
            end
          end
        end
      end
    end
    return ready
  end

  -- Let the pattern of the cluster that is left show the slots.
  function show_slots(root, ready)
    if ready.alike[root.id] then
      for number in pairs(ready.numbers) do show(root, number) end
      for number in pairs(ready.together) do show(root, number) end
    end
  end

  local function put_learned(slot, c, first, live)
    local list = slot.list
    filter(list, function(posting) return posting.number ~= slot.number end)
    put(list, c, slot.number, LEARNED, first, live)
    if first then show(c, slot.number) end
  end

  -- Note which slots are learned, without values: for a pattern of which one word is a known variable.
  function learn_slots(q, c, ready, live)
    for i = 1, #q.slots do
      local slot = q.slots[i]
      if ready.numbers[slot.number] then
        local list, known = slot.list, false
        forget_former(list, c)
        local postings = postings_of(list, slot.number)
        for j = 1, #postings do
          known = known or postings[j].value == LEARNED and live(postings[j], list)
        end
        if not known and (has_key(c, list.key) or has_room(c, 1)) then put_learned(slot, c, ready.alike[c.id], live) end
      end
    end
  end

  -- The keys of a pattern of which no list exists, for the cluster that it opens; nil if one may have
  -- been noted since they were read.
  function keys_of_new(q)
    if q.words > 0 and q.plain and not q.slots and not any_changed then return sub(PATTERNS, q.keys_at, q.places_at - 1) end
  end

  -- Note the values of a pattern of a cluster; `first` if it is its representative's, `outside` if it differs
  -- from that in more than learned words.
  function note_words(q, c, ready, live, first, outside)
    if not q.slots then
      if first and c.is_noted then
        work = work + #c[C_POSTING_KEYS] / KEY_BYTES * FIELD_WORK
        waiting_patterns[#waiting_patterns + 1] = q
        return
      end
      read_slots(q)
    end
    if not has_room(c, 1 + #q.slots) then return end
    local own = q.own_list
    forget_former(own, c)
    if not outside and #live_postings(own, OWN, live) == 0 then
      if #postings_of(own, OWN) > 0 then filter(own, function(posting) return posting.number ~= OWN end) end
      put(own, c, OWN, gaps_of(q), first, live)
    end
    for i = 1, #q.slots do
      local slot = q.slots[i]
      local list = slot.list
      forget_former(list, c)
      local known, noted, count = nil, nil, 0  -- its posting, if learned; that of the value; other values
      local found = postings_of(list, slot.number)
      for j = 1, #found do  -- most often none
        local posting = found[j]
        if posting.value == LEARNED then
          known = posting
        elseif posting.value == slot.value then
          noted = posting
        else
          count = count + 1
        end
      end
      if known and live(known, list) then
        -- it is learned
      elseif ready.numbers[slot.number] then
        put_learned(slot, c, first or ready.alike[c.id], live)
      elseif not (noted and live(noted, list)) then
        local wanted = wanted_values(slot.around)
        local full = count + 1 >= wanted and count_open(found, slot.value, list, live) + 1 >= wanted
        if not (full and completes(slot, postings_alone(list, slot, live))) then
          if full or known or noted then
            filter(list, function(posting)
              if posting.number ~= slot.number then return true end
              return posting.value ~= LEARNED and posting.value ~= slot.value and (not full or live(posting, list))
            end)
          end
          put(list, c, slot.number, slot.value, first, live)
        end
      end
    end
  end

  -- Put a posting in place of those that say the same, and are of its cluster or do not count for the event.
  local function put_instead(list, c, number, value, first, live)
    local found = postings_of(list, number)
    for i = 1, #found do
      if found[i].value == value and (found[i].id == c.id or not live(found[i], list)) then
        filter(list, function(posting)
          return posting.number ~= number or posting.value ~= value or posting.id ~= c.id and live(posting, list)
        end)
        break
      end
    end
    put(list, c, number, value, first, live)
  end

  -- List a combination, unless enough clusters do.
  local function list_combination(q, p, combination, c, live)
    local value, taken, fields = value_of(combination), taken_by(p, combination), {}
    for anchor = 0, ANCHORS - 1 do
      if not taken[anchor] and #fields < MOST_ANCHORS then fields[#fields + 1] = list_field(q, anchor) end
    end
    local lists = lists_at(fields, q.group_hash)
    for i = 1, #lists do
      local list = lists[i]
      forget_former(list, c)
      local at = string.find(list.packed, string.char(COMBINATION) .. value .. c.id, 1, true)
      if not at or at % POSTING_BYTES ~= 1 then  -- else it is listed, as most often
        local listed, count = postings_of(list, COMBINATION), 0
        for j = 1, #listed do
          if listed[j].value == value and live(listed[j], list) then
            count = listed[j].id == c.id and MAX_LISTED or count + 1
          end
        end
        if count < MAX_LISTED and has_room(c, 1) then
          note_shape(q)
          put_instead(list, c, COMBINATION, value, false, live)
        end
      end
    end
  end

  -- Note that the words of a combination vary in a cluster's pattern.
  local function vary(q, p, combination, c, live)
    list_combination(q, p, combination, c, live)
    local list = lists_at({combined_field(q, p, combination)}, q.group_hash)[1]
    forget_former(list, c)
    put_instead(list, c, OWN, NO_VALUE, true, live)
  end

  -- The numbers and values of a list, as they begin postings, and how many values each number has. A list may
  -- be full of them, so no tables are made.
  local function values_of(list, live)
    local packed, known, counts, alive = list.packed, {}, {}, {}
    for at = 1, #packed, POSTING_BYTES do
      local said = sub(packed, at, at + SAID_BYTES - 1)
      if not known[said] then
        local id = sub(packed, at + SAID_BYTES, at + POSTING_BYTES - 1)
        if alive[id] == nil then alive[id] = live({id = id}, list) and true or false end
        if alive[id] then
          local number = byte(said) % FIRST_NUMBER
          known[said], counts[number] = true, (counts[number] or 0) + 1
        end
      end
    end
    work = work + #packed / POSTING_BYTES * WORK.read
    return known, counts
  end

  -- Note the values of each other word of a pattern, and beside it those of the words of a combination.
  local function note_beside(q, p, combination, c, live)
    local wanted, noted, packed = 2 * learn, {false}, ''
    for i = 1, #p.slots do
      local slot = p.slots[i]
      if is_in(combination, slot.number) then noted[#noted + 1], packed = slot, packed .. slot.posting end
    end
    if #noted * wanted > MAX_POSTINGS then return end
    local slots, longer, fields = slots_beside(q, p, combination)
    local lists = lists_at(fields, q.group_hash)
    for i = 1, #lists do
      local list = lists[i]
      noted[1] = slots[i]
      if not has_room(c, 2) then return end
      if list.packed == '' and c.id == q.id then  -- most often; the caller has packed the postings
        add_key(c, list.key)
        change(list, slots[i].posting .. packed)
      else
        forget_former(list, c)
        local known, counts = values_of(list, live)
        if not counts[OWN] then
          local least = wanted
          for j = 1, #noted do
            local number = noted[j].number
            counts[number] = (counts[number] or 0) + (known[noted[j].said] and 0 or 1)
            least = math.min(least, counts[number])
          end
          if least == wanted then
            vary(q, p, longer[i], c, live)
          else
            for j = 1, #noted do
              local number, value = noted[j].number, noted[j].value
              if not known[noted[j].said] and counts[number] <= wanted then
                put_instead(list, c, number, value, true, live)
              end
            end
          end
        end
      end
      work = work + WORK.noted
    end
  end

  -- Note which words vary in the pattern of a cluster that a query has joined, as a combination.
  function note_together(q, c, ready, live)
    if not ready.alike[c.id] then return end
    local p = words_of(q)
    local combination, is_tried = combination_of(p, c[C_LEARNED]), false
    if combination == 0 then return end
    for i = 1, #q.combinations do
      if q.combinations[i] == combination then
        is_tried = true
        if #q.together[i] > 0 then return list_combination(q, p, combination, c, live) end
      end
    end
    if (not is_tried and #q.combinations >= MAX_COMBINATIONS) or not has_room(c, 2) then return end
    vary(q, p, combination, c, live)
    note_beside(q, p, combination, c, live)
  end

  -- Note that the words of a combination vary in the pattern that has opened a cluster.
  function combine(q, c, combination, live)
    local p = words_of(q)
    for number = 0, COMBINED_WORDS - 1 do
      if is_in(combination, number) then show(c, number) end
    end
    vary(q, p, combination, c, live)
    note_beside(q, p, combination, c, live)
  end

  -- Note the values of the pattern that opens a cluster, as if other words of it varied.
  function note_assumed(q, c, live)
    for i = 1, math.min(#q.combinations, MAX_ASSUMED) do
      note_beside(q, words_of(q), q.combinations[i], c, live)
    end
  end

  -- Let the postings that say more of a cluster than values name another one, as far as that has room, and remove
  -- its values; of so many that are looked at. Those left over are purged with the cluster. Returns how many more
  -- may be looked at.
  function move_postings(group_hash, loser, root, looks)
    local keys, left, fields = loser[C_POSTING_KEYS], {}, {}
    write_patterns()
    any_changed = true
    for key_at = 1, math.min(#keys, looks * KEY_BYTES), KEY_BYTES do
      fields[#fields + 1] = group_hash .. sub(keys, key_at, key_at + KEY_BYTES - 1)
    end
    local lists = lists_at(fields, group_hash)
    for i = 1, #lists do
      local list = lists[i]
      local key = list.key
      if has_room(root, 1) or has_key(root, key) then
        forget_former(list, root)
        if is_named(list, loser.id) then
          local named = is_named(list, root.id)
          local may_follow, follows = named or has_room(root, 1), false
          local packed, moved = list.packed, {}
          for at = 1, #packed, POSTING_BYTES do
            local posting = sub(packed, at, at + POSTING_BYTES - 1)
            if sub(posting, POSTING_ID_AT) == loser.id then
              local number, value = byte(posting) % FIRST_NUMBER, sub(posting, POSTING_VALUE_AT, POSTING_ID_AT - 1)
              if may_follow and (number == OWN or number == COMBINATION or value == LEARNED) then
                moved[#moved + 1], follows = string.char(number) .. value .. root.id, true
              end
            else
              moved[#moved + 1] = posting
            end
          end
          change(list, table.concat(moved))
          if follows and not named then add_key(root, key) end
        end
      else
        left[#left + 1] = key
      end
    end
    loser[C_POSTING_KEYS] = table.concat(left) .. sub(keys, #lists * KEY_BYTES + 1)
    return looks - #lists
  end

  -- Remove what names a cluster, in the group that it has had.
  function remove_postings(c)
    local keys, group_hash = c[C_POSTING_KEYS], sub(c[C_NAME_LIST], 1, GROUP_BYTES)
    for at = 1, #keys, KEY_BYTES do
      local list = list_of(sub(keys, at, at + KEY_BYTES - 1), group_hash)
      if is_named(list, c.id) then
        filter(list, function(posting) return posting.id ~= c.id end)
      end
    end
    change_keys(c, '')
  end

  -- Write what has changed: of a slice at once. If a round has renewed all slices, only new ones need a time
  -- to live.
  function write_postings()
    write_patterns()
    local writes, written, removed = {}, {}, {}
    for _, list in pairs(changed_lists) do
      local packed = list.packed
      if packed == '' then
        if list.stored then
          removed[list.slice] = removed[list.slice] or {}
          table.insert(removed[list.slice], list.field)
        end
      elseif packed ~= list.stored then
        local of_slice = writes[list.slice]
        if not of_slice then
          of_slice = {}
          writes[list.slice], written[#written + 1] = of_slice, list.slice
        end
        of_slice[#of_slice + 1] = list.field
        of_slice[#of_slice + 1] = packed
      end
    end
    for slice, fields in pairs(removed) do
      for at = 1, #fields, MAX_FIELDS do
        call('HDEL', slice, unpack(fields, at, math.min(at + MAX_FIELDS - 1, #fields)))
      end
    end
    for from = 1, #written, AT_ONCE do
      local to = math.min(from + AT_ONCE - 1, #written)
      local exist = all_renewed and all_exist(written, from, to)
      for i = from, to do
        local fields = writes[written[i]]
        for at = 1, #fields, MAX_FIELDS do
          call('HSET', written[i], unpack(fields, at, math.min(at + MAX_FIELDS - 1, #fields)))
        end
        if not exist then renew(written[i]) end
      end
    end
  end
end
