# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: initializedcheck=False, freethreading_compatible=True
"""The native kernel: turns a batch of texts into arrays of numbers, in one call, without the GIL.

It computes what `reference.ReferenceKernel` computes; read that first. The differences:

* Token classes come from a table of 256 byte classes, ORed over a token's bytes. Only tokens with a
  dot, an ``@`` or a capital first letter are examined again. There is no regex. Structure inside a
  line is read by `features/_pieces.pxd`, statuses and exit codes by `features/_variants.pxd`.
* Hashes, sorting and the votes of a simhash are in `_hashes.pxd`.
* Variables are never hashed: every run of them has the placeholder's hashes, computed in advance.
* Votes (MurmurHash3) are computed only where fingerprints are asked for.
* Bands, if asked for: the hashes of all features are collected in 32 bits each; the 48 minhashes are
  computed side by side, in vectors where the processor has them.
* Simhash keeps its counters as bit planes. Plane j holds bit j of the 64 counters of a word, so a
  vote is a few ANDs and XORs; all counters are compared with half the total at once.
* Structured lines are remembered without their digits: which of them a token has matters to no hash,
  except in a status, an exit code, and in a line without words. A line that equals one before it in
  all else has its numbers, after a comparison of its bytes. In logs that is most lines.

Memory: a few growing buffers for the longest event of the batch, of 48 bytes a token, 40 bytes a
feature and 8 bytes each a hash; the sketches of all its events, 512 bytes each at most (of bands 258), if the recipe
verifies by them; and their keys of words, some 32 bytes a word, if it learns. Of remembered lines up to 4.6 MB a
kernel.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcmp, memcpy, memset

import array

from stream_dedup.features import lines, pieces
from stream_dedup.features.lines import LEAST_GROUP, MAX_GROUP
from stream_dedup.features.tokens import CALENDAR_NAMES, PLACEHOLDER
from stream_dedup.features.variants import (
    LEVEL_KEYS,
    LEVELS,
    MAX_KEY_BYTES,
    MAX_WORD_BYTES,
    SEVERITIES,
)
from stream_dedup.fingerprint import bands, one_off
from stream_dedup.fingerprint.hashing import hash128
from stream_dedup.fingerprint.kernel import MAX_VOTES, MAX_WEIGHT, SKETCH_SIZE, Fingerprints
from stream_dedup.fingerprint.siphash import HashKey
from stream_dedup.tables import sketches

from stream_dedup.features._pieces cimport (
    DIGIT,
    Line,
    MAX_WORDS,
    Piece,
    SLASH,
    SUBSTITUTE,
    Tables,
    Words,
    escapes_end,
    fill_classes,
    fill_tables,
    holds,
    is_blank,
    is_method,
    is_numbered_process,
    is_of_class,
    is_of_rsyslog,
    is_participle,
    is_role,
    is_said,
    is_signed,
    is_word_byte,
    may_have_escapes,
    names_itself,
    never_closed,
    next_piece,
    set_words,
    start_line,
)
from stream_dedup.features._variants cimport (
    is_amount_at,
    is_before_failures,
    is_before_sizes,
    is_behind_http,
    is_behind_key,
    is_behind_times,
    is_between_bars,
    is_day_before_time,
    is_exit_code,
    is_integer,
    is_nonzero,
    is_number,
    is_of_squid,
    is_sent,
    may_be_exit_code,
    may_be_status,
    status_of_request,
)
from stream_dedup.fingerprint._hashes cimport (
    BAND_SKETCH,
    Hashes,
    Hashes16,
    Hashes32,
    Pair,
    Secret,
    end_turn,
    finish,
    grown,
    keys_of,
    last_word,
    load64,
    load_tail,
    lowest_bit,
    majority,
    murmur,
    pack_sketch,
    push_hash,
    reserve16,
    reserve32,
    reserve_hashes,
    rotate,
    short_hashes,
    sip,
    sip_sequence,
    sip_sequence_end,
    sip_word,
    sort_hashes,
    sort_least,
    take_turn,
    vote,
    vote_eight,
    without_digits,
)

cdef enum:
    PLANES = 56  # MAX_VOTES is below 2^56
    SKETCH = 64
    FEW = 64  # at most as many as a sketch holds
    MAX_CALENDAR = 9  # letters of "Wednesday", "September"
    MAX_WORD = 16  # bytes of a protected word
    MAX_KEY = 15
    BETWEEN_ITEMS = 1
    KEYED = 2
    MOST_WORDS = 48
    REPEATED = 64
    LEAST_AROUND = 2
    WORDS_BITS = 6
    COUNTED_STEP = 2
    MOST_COUNTED = 6
    VALUE_BITS = 23
    BANDS = 16
    ROWS = 3
    MINHASHES = 48
    KEY_BYTES = 4
    BAND_BYTES = 64  # of a fingerprint
    KNOWN = 8192  # lines remembered, a power of two
    KNOWN_BYTES = 512  # of each at most
    KNOWN_STATUSES = 2  # in each at most
    LIKELY_LEAST = 208  # so many of random hashes contain the least `BAND_SKETCH` but for one in 10^8

cdef array.array _U64 = array.array("Q")
cdef array.array _U32 = array.array("I")
cdef int64_t _MAX_VOTES = MAX_VOTES
cdef size_t _LEAST_GROUP = LEAST_GROUP, _MAX_GROUP = MAX_GROUP
cdef uint64_t KEY_BASE = one_off.KEY_BASE
cdef uint64_t MOST32 = 0xFFFFFFFF
cdef size_t ASSIGNED_WORDS = one_off.ASSIGNED
cdef uint64_t GAPS = one_off.ALL_GAPS
cdef uint64_t BESIDE_GAP = one_off.BESIDE_GAP
cdef size_t LEAST_LETTERS = lines.LEAST_LETTERS
cdef uint64_t NO_WORD = ~<uint64_t>0
cdef uint64_t LEAST_MASK = ~<uint64_t>0 << (64 - <int>one_off.LEAST_BITS)

cdef struct Item:
    uint64_t identity  # keyed
    uint64_t low  # the votes; not set where no fingerprints are asked for
    uint64_t high
    int64_t weight
    uint32_t order
    uint8_t variable
    uint8_t protected
    uint8_t assigned
    uint8_t of_kind
    uint8_t level
    uint8_t running  # a word of the running text
    uint8_t bare  # a word without letters
    uint8_t gap  # what is before it: see `gap_before`; of lines with structure alone

cdef struct Items:
    Item* at
    size_t count
    size_t room

cdef struct Word:  # a protected word: its bytes in lower case, padded with zeros, and its identity
    uint64_t head
    uint64_t tail
    uint64_t identity
    bint used
    bint level  # and nothing else
    bint level_name

cdef struct Known:  # a line that was hashed, with a 0 for each digit
    uint64_t hashed  # of its bytes
    uint64_t exact
    uint64_t variant
    uint32_t words
    uint16_t length  # 0: none
    bint used  # since another line wanted its place
    int statuses
    uint16_t places[KNOWN_STATUSES]  # of the first digit of each
    uint8_t digits[KNOWN_STATUSES]
    uint8_t text[KNOWN_BYTES]

cdef struct Part:
    const uint8_t* text
    size_t length
    int64_t weight
    uint64_t salt
    uint64_t identity_salt


# ---------------------------------------------------------------- keys and tokens

cdef Secret secret_of(key) except *:
    if not isinstance(key, HashKey):
        raise TypeError("the key is a HashKey")
    cdef bytes raw = key.secret()
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(raw)
    cdef uint64_t low = load64(p), high = load64(p + 8)
    cdef Secret out
    out.v0 = low ^ <uint64_t>0x736F6D6570736575
    out.v1 = high ^ <uint64_t>0x646F72616E646F6D
    out.v2 = low ^ <uint64_t>0x6C7967656E657261
    out.v3 = high ^ <uint64_t>0x7465646279746573
    return out


def siphash(key, bytes data not None):
    """See `siphash.siphash`; with one round for each 8 bytes, and three at the end."""
    cdef Secret secret = secret_of(key)
    return sip(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &secret)


cdef inline int reserve(Items* items, size_t more) except -1 nogil:
    cdef size_t wanted = items.count + more
    if wanted > items.room:
        items.at = <Item*>grown(items.at, &items.room, wanted, sizeof(Item))
    return 0


cdef inline int push(
    Items* items, uint64_t identity, Pair votes, const Part* part, int64_t weight, bint variable
) except -1 nogil:
    # `weight` is the feature's own, without the factor of its part.
    cdef Item* item
    reserve(items, 1)
    item = &items.at[items.count]
    item.identity = identity ^ part.identity_salt
    item.low = votes.low ^ part.salt
    item.high = votes.high ^ part.salt
    item.weight = weight * part.weight
    item.order = <uint32_t>items.count
    item.variable = variable
    item.protected = item.assigned = item.of_kind = item.level = item.running = item.bare = False
    items.count += 1
    return 0


cdef int by_votes(const void* left, const void* right) noexcept nogil:
    cdef const Item* a = <const Item*>left
    cdef const Item* b = <const Item*>right
    if a.low != b.low:
        return 1 if a.low > b.low else -1
    return 1 if a.order > b.order else -1


cdef int drop_repeats(Items* items, Hashes* slots) except -1 nogil:
    # Keeps the first of equal identities, in order. These are keyed, so whoever writes the text
    # cannot make their slots in the hash set collide.
    cdef size_t room = 16, slot, i, kept = 0
    cdef int shift = 60
    cdef bint zero = False, again
    cdef uint64_t identity
    while room < 2 * items.count:
        room *= 2
        shift -= 1
    slots.count = 0
    reserve_hashes(slots, room)
    memset(slots.at, 0, room * sizeof(uint64_t))
    for i in range(items.count):
        identity = items.at[i].identity
        if identity == 0:  # an empty slot's mark
            again = zero
            zero = True
        else:
            slot = identity >> shift
            while slots.at[slot] != 0 and slots.at[slot] != identity:
                slot = (slot + 1) & (room - 1)
            again = slots.at[slot] == identity
            slots.at[slot] = identity
        if not again:
            if kept != i:
                items.at[kept] = items.at[i]
            kept += 1
    items.count = kept
    return 0


cdef class Workspace:
    """The buffers of one call, and the arrays that it fills."""

    cdef Items tokens, features
    cdef Hashes scratch, sketches, sketch_ends
    cdef Hashes variant  # of the current event: its variant's words
    cdef Hashes token_of  # the number of the token that each of them stands in
    cdef Hashes slots, slot_ends
    cdef Hashes32 gathered  # of the current event: the hashes that bands are made of, …
    cdef bint is_gathered  # … if they are there already
    cdef Hashes32 likely, sorting
    cdef Hashes last  # words that end short texts
    cdef Hashes plain  # bytes of a line without escape sequences
    cdef Hashes16 band_sketches
    cdef bytes band_keys  # of each event: its keys in order, big-endian
    cdef uint8_t* band_keys_at
    cdef array.array exact, words, low, high, chosen, variants
    cdef int statuses  # of the current event, some of them at …
    cdef uint16_t places[KNOWN_STATUSES]
    cdef const Part* parts  # of the current event
    cdef size_t part_count
    cdef size_t sketch_from_bytes  # 0 unless each event has one part
    cdef bint full
    cdef bint sketches_only  # of bands

    def __cinit__(self, size_t events, bint full, bint wide, bint minhash, bint bands):
        # Cython has zeroed the buffers.
        self.full = full
        self.exact = array.clone(_U64, events, False)
        self.words = array.clone(_U32, events, False)
        self.variants = array.clone(_U64, events, True)
        self.low = array.clone(_U64, events if full and not bands else 0, False)
        self.high = array.clone(_U64, events if full and wide else 0, False)
        self.chosen = array.clone(_U64, events if full and minhash else 0, False)
        reserve_hashes(&self.sketch_ends, events)
        reserve_hashes(&self.slot_ends, events)
        self.band_keys = b""
        if full and bands:
            self.band_keys = PyBytes_FromStringAndSize(NULL, events * BAND_BYTES)
            self.band_keys_at = <uint8_t*>PyBytes_AS_STRING(self.band_keys)

    def __dealloc__(self):
        free(self.tokens.at)
        free(self.features.at)
        free(self.scratch.at)
        free(self.sketches.at)
        free(self.sketch_ends.at)
        free(self.variant.at)
        free(self.token_of.at)
        free(self.slots.at)
        free(self.slot_ends.at)
        free(self.gathered.at)
        free(self.likely.at)
        free(self.sorting.at)
        free(self.last.at)
        free(self.plain.at)
        free(self.band_sketches.at)

    cdef int remove_escapes(self, const Tables* tables, Part* part) except -1 nogil:
        """Make a part's text one without escapes, until the next call.

        See `LineReader.without_escapes`.
        """
        cdef Line line
        cdef uint8_t* out
        cdef size_t at = 0, size = 0, end
        cdef bint spaced, of_rsyslog
        self.plain.count = 0
        reserve_hashes(&self.plain, part.length // 8 + 2)
        out = <uint8_t*>(self.plain.at + 1)  # `load_tail` reads what is before it
        start_line(&line, tables, part.text, part.length)
        of_rsyslog = is_of_rsyslog(&line)
        while at < part.length:
            spaced = False
            end = escapes_end(&line, at, of_rsyslog, &spaced)
            if end == at:
                out[size] = part.text[at]
                size += 1
                at += 1
                continue
            if at and end < part.length and (
                spaced and not is_blank(part.text[at - 1]) and not is_blank(part.text[end])
                or tables.classes[part.text[at - 1]] and tables.classes[part.text[end]]
            ):
                out[size] = c" "
                size += 1
            at = end
        part.text = out
        part.length = size
        return 0

    cdef inline void put(self, size_t event, uint64_t exact, uint32_t words) noexcept nogil:
        self.exact.data.as_ulonglongs[event] = exact
        self.words.data.as_uints[event] = words

    cdef list cut(self, const Hashes* hashes, const Hashes* ends):
        """Return the hashes of each event as bytes."""
        cdef size_t i, first = 0
        cdef list out = []
        for i in range(len(self.exact)):
            out.append(
                PyBytes_FromStringAndSize(
                    <const char*>(hashes.at + first), (ends.at[i] - first) * sizeof(uint64_t)
                )
            )
            first = ends.at[i]
        return out

    cdef list cut_bands(self):
        """Return the sketches of bands of each event as bytes."""
        cdef size_t i, first = 0
        cdef list sketches = []
        for i in range(len(self.exact)):
            sketches.append(
                PyBytes_FromStringAndSize(
                    <const char*>(self.band_sketches.at + first),
                    (self.sketch_ends.at[i] - first) * sizeof(uint16_t),
                )
            )
            first = self.sketch_ends.at[i]
        return sketches

    cdef fingerprints(self, bint learns, bint bands):
        cdef list sketches = []
        if self.full and bands:
            sketches = self.cut_bands()
        elif self.full:
            sketches = self.cut(&self.sketches, &self.sketch_ends)
        return Fingerprints(
            self.exact,
            self.words,
            self.low,
            self.high,
            sketches,
            self.chosen,
            self.variants,
            self.cut(&self.slots, &self.slot_ends) if self.full and learns else [],
            self.band_keys,
        )


# ---------------------------------------------------------------- keys of patterns; see `one_off`

cdef inline void note_least(uint64_t* least, uint64_t word) noexcept nogil:
    # Keeps the least three distinct words; NO_WORD where there are fewer.
    if word >= least[2] or word == least[0] or word == least[1]:
        return
    if word > least[1]:
        least[2] = word
        return
    least[2] = least[1]
    if word > least[0]:
        least[1] = word
    else:
        least[1] = least[0]
        least[0] = word


cdef inline uint64_t key_of(
    uint64_t total, size_t count, const uint64_t* least, uint64_t missing
) noexcept nogil:
    # The key of a sequence without a word: the least words are those of the sequence with it.
    cdef uint64_t first = least[1] if missing == least[0] else least[0]
    cdef uint64_t second = least[1] if missing != least[0] and missing != least[1] else least[2]
    cdef uint64_t high = finish(first * KEY_BASE + (first if second == NO_WORD else second))
    return (high & LEAST_MASK) | (finish(total ^ count) & ~LEAST_MASK)


cdef inline uint64_t key_of_two(uint64_t one, uint64_t other) noexcept nogil:
    cdef uint64_t high = finish(min(one, other) * KEY_BASE + max(one, other))
    return (high & LEAST_MASK) | (finish(one * KEY_BASE + other ^ 2) & ~LEAST_MASK)


cdef inline uint64_t value_of(uint64_t word, bint beside_gap) noexcept nogil:
    return (word & ~BESIDE_GAP) | (BESIDE_GAP if beside_gap else 0)


cdef inline void put_slot(
    Hashes* slots, uint64_t key, size_t number, size_t around, uint64_t word, bint assigned
) noexcept nogil:
    slots.at[slots.count] = key
    slots.at[slots.count + 1] = (
        number | around << 8 | <uint64_t>assigned << 16 | (word & (1 << VALUE_BITS) - 1) << 32
    )
    slots.count += 2


cdef inline bint has_no_letters(const uint8_t* word, size_t length) noexcept nogil:
    cdef size_t i
    for i in range(length):
        if is_word_byte(word[i]):
            return False
    return True


cdef int take_slots(Workspace work, const Items* tokens) except -1 nogil:
    """Add the key of one event's words, and its slots."""
    cdef uint64_t words[MOST_WORDS]
    cdef uint64_t head[MOST_WORDS + 1]
    cdef uint64_t tail[MOST_WORDS + 1]
    cdef uint64_t power[MOST_WORDS + 1]
    cdef uint64_t fixed = 0, weak = 0, uncounted = 0, assigned = 0, gaps = 0, shape = 0
    cdef uint64_t rest, values, missing
    cdef uint64_t least[3]
    cdef size_t places[2]  # of the first two of them
    cdef size_t count = 0, counting = 0, i, j, left, around
    cdef bint first
    cdef Hashes* slots = &work.slots
    for i in range(tokens.count):
        if tokens.at[i].variable:
            gaps |= <uint64_t>1 << count
            continue
        if count == MOST_WORDS:
            return 0
        words[count] = tokens.at[i].identity
        fixed |= <uint64_t>(tokens.at[i].protected or tokens.at[i].of_kind) << count
        weak |= <uint64_t>(tokens.at[i].level or tokens.at[i].of_kind) << count
        if tokens.at[i].level or tokens.at[i].bare:
            uncounted |= <uint64_t>1 << count
        else:
            counting += 1
        assigned |= <uint64_t>tokens.at[i].assigned << count
        count += 1
    if count < 2:
        return 0
    reserve_hashes(slots, 4 + 4 * count)
    head[0] = tail[count] = 0
    power[0] = 1
    for i in range(count):
        head[i + 1] = head[i] * KEY_BASE + words[i]
        power[i + 1] = power[i] * KEY_BASE
    for i in range(count, 0, -1):
        tail[i - 1] = tail[i] + words[i - 1] * power[count - i]
    least[0] = least[1] = least[2] = NO_WORD
    for i in range(count):
        note_least(least, words[i])
        shape = shape * KEY_BASE + (words[i] if fixed >> i & 1 else 0)
    shape = finish((shape + gaps) * KEY_BASE + count)
    shape = shape & ~GAPS | gaps & GAPS
    slots.at[slots.count] = key_of(head[count], count, least, NO_WORD)
    slots.at[slots.count + 1] = (
        count | min(counting, MOST_COUNTED) // COUNTED_STEP << WORDS_BITS | shape << 8
    )
    slots.count += 2
    if count == LEAST_AROUND:
        for i in range(2):
            if not fixed >> i & 1 and not (weak | uncounted) >> (1 - i) & 1:
                put_slot(
                    slots, key_of_two(words[1 - i], gaps), i, 1, value_of(words[i], gaps >> i & 0b11),
                    assigned >> i & 1,
                )
        return 0
    places[0] = places[1] = 0
    for i in range(count):
        places[0] += words[i] == least[0]
        places[1] += words[i] == least[1]
    for i in range(count):
        around = counting - (not uncounted >> i & 1)
        if fixed >> i & 1 or around == 0:
            continue
        missing = words[i]
        if (missing == least[0] and places[0] > 1) or (missing == least[1] and places[1] > 1):
            missing = NO_WORD  # it stands elsewhere, too
        rest = head[i] * power[count - 1 - i] + tail[i + 1]
        put_slot(
            slots, key_of(rest, count - 1, least, missing), i, around,
            value_of(words[i], gaps >> i & 0b11), assigned >> i & 1,
        )
    for i in range(count):
        if fixed >> i & 1:
            continue
        first = True
        rest = left = around = 0
        for j in range(count):
            if words[j] != words[i]:
                rest = rest * KEY_BASE + words[j]
                left += 1
                around += not uncounted >> j & 1
            elif j < i:
                first = False
                break
        if first and LEAST_AROUND <= left < count - 1 and around:
            put_slot(
                slots, key_of(rest, left, least, words[i]), REPEATED + i, around, words[i],
                assigned >> i & 1,
            )
    if not assigned:
        return 0
    least[0] = least[1] = least[2] = NO_WORD
    rest = values = left = around = 0
    for i in range(count):
        if assigned >> i & 1:
            values = values * KEY_BASE + words[i]
        else:
            rest = rest * KEY_BASE + words[i]
            note_least(least, words[i])
            left += 1
            around += not uncounted >> i & 1
    if left >= LEAST_AROUND and around:
        values = finish(values ^ (count - left))
        put_slot(slots, key_of(rest, left, least, NO_WORD), ASSIGNED_WORDS, around, values, True)
    return 0


cdef inline bint is_all_blank(Workspace work) noexcept nogil:
    """Return whether an event is white space alone."""
    cdef size_t i, j
    for i in range(work.part_count):
        for j in range(work.parts[i].length):
            if not is_blank(work.parts[i].text[j]):
                return False
    return True


cdef class Kernel:
    """The native kernel of one recipe and key; see `kernel.Kernel` for the methods."""

    cdef uint8_t classes[256]
    cdef uint8_t calendar[24][MAX_CALENDAR + 1]
    cdef uint8_t calendar_length[24]
    cdef uint32_t calendar_pairs[256]  # by first letter: bit n for second ones whose low bits are n
    cdef int calendar_count
    cdef Tables tables  # of structured lines
    cdef Words level_keys
    cdef bint structured
    cdef bint has_words  # texts end with their words; see `folding.fold_both`
    cdef bint token_classes, characters, words, once, minhash, bands, wide, sketched, learns
    cdef uint32_t seed
    cdef uint32_t salted_from  # words of an event whose running text is in its sketch
    cdef int ngram, least
    cdef size_t max_bytes
    cdef uint64_t width_mask
    cdef Secret secret
    cdef Pair placeholder
    cdef uint64_t placeholder_identity
    cdef int64_t default_weight, placeholder_weight
    cdef uint64_t* weight_keys
    cdef int64_t* weight_values
    cdef size_t weight_mask
    cdef Word* protected
    cdef uint64_t severities[256]  # identities of levels, by their letters; 0 for other bytes
    cdef size_t protected_mask
    cdef const Word* negation  # "not", if it is protected
    cdef uint32_t protected_lengths[256]  # by first letter: bit n for words of n bytes
    cdef uint32_t protected_pairs[256]  # by first letter: bit n for second ones whose low bits are n
    cdef bint statuses
    cdef uint64_t status_hashes[6]
    cdef uint64_t exit_hashes[2]  # of zero and of other exit codes
    cdef Known* known
    cdef long known_taken  # by one thread at a time
    cdef uint32_t multipliers[MINHASHES]
    cdef uint32_t increments[MINHASHES]

    def __cinit__(self, recipe, key):
        self.weight_keys = NULL
        self.weight_values = NULL
        self.protected = self.negation = NULL
        self.known = NULL

    def __init__(self, recipe, key):
        cdef int byte
        self.secret = secret_of(key)
        fill_classes(self.classes, recipe.delimiters)
        fill_tables(&self.tables, recipe.delimiters)
        set_words(&self.level_keys, LEVEL_KEYS, True)
        self.set_calendar()
        settings = recipe.fingerprint
        self.token_classes = bool(recipe.text.classes)
        self.structured = recipe.text.classes == "structured"
        self.has_words = recipe.text.fold == "look-alikes+words"
        self.characters = recipe.features.extractor == "characters"
        self.words = recipe.features.extractor == "words"
        self.once = recipe.features.repeats == "once"
        self.minhash = settings.kind == "minhash"
        self.bands = settings.kind == "bands"
        if self.bands:
            for number, (multiplier, increment) in enumerate(bands.factors(settings.seed)):
                place = number % ROWS * BANDS + number // ROWS
                self.multipliers[place] = multiplier
                self.increments[place] = increment
        self.sketched = recipe.match.jaccard > 0
        self.learns = recipe.match.learn > 0
        self.salted_from = recipe.min_search_words if recipe.compares_text else 0xFFFFFFFF
        self.wide = settings.width == 128
        self.width_mask = 0xFFFFFFFF if settings.width == 32 else 0xFFFFFFFFFFFFFFFF
        self.seed = settings.seed
        self.ngram = recipe.features.ngram
        self.least = settings.least
        self.max_bytes = recipe.input.max_bytes
        self.placeholder.low, self.placeholder.high = hash128(PLACEHOLDER, settings.seed)
        self.placeholder_identity = ~<uint64_t>siphash(key, PLACEHOLDER)
        weights = recipe.features.weights
        self.default_weight = weights.default
        self.placeholder_weight = weights.placeholder
        self.set_weights(weights.table, key)
        self.set_protected(recipe.protected, recipe.levels, key)
        self.statuses = "status" in recipe.match.variants
        for byte in range(1, 6):
            self.status_hashes[byte] = siphash(key, b"%dxx" % byte)
        self.exit_hashes[0] = siphash(key, b"zero")
        self.exit_hashes[1] = siphash(key, b"nonzero")
        if self.structured and not self.characters and all(
            self.classes[byte] & DIGIT for byte in range(c"0", c"9" + 1)
        ):
            self.known = <Known*>calloc(KNOWN, sizeof(Known))  # without it, nothing is remembered

    cdef set_calendar(self):
        names = sorted(CALENDAR_NAMES)
        # "May" is its own abbreviation: 12 + 7 full names and 18 short ones, kept by first letter.
        memset(self.calendar_pairs, 0, sizeof(self.calendar_pairs))
        self.calendar_count = 0
        for name in names:
            if len(name) > 3 or name == b"May":
                memcpy(self.calendar[self.calendar_count], <const char*>name, len(name))
                self.calendar_length[self.calendar_count] = len(name)
                self.calendar_pairs[name[0]] |= <uint32_t>1 << (name[1] & 31)
                self.calendar_count += 1

    cdef set_weights(self, table, hash_key):
        cdef size_t room = 16, slot
        cdef uint64_t key
        if not table:
            return
        while room < 2 * len(table):
            room *= 2
        self.weight_mask = room - 1
        self.weight_keys = <uint64_t*>malloc(room * sizeof(uint64_t))
        self.weight_values = <int64_t*>malloc(room * sizeof(int64_t))
        if self.weight_keys == NULL or self.weight_values == NULL:
            raise MemoryError
        memset(self.weight_values, 0xFF, room * sizeof(int64_t))  # -1: free
        for word, weight in table.items():
            key = siphash(hash_key, word.encode())
            slot = key & self.weight_mask
            while self.weight_values[slot] >= 0 and self.weight_keys[slot] != key:
                slot = (slot + 1) & self.weight_mask
            self.weight_keys[slot] = key
            self.weight_values[slot] = weight

    cdef set_protected(self, words, levels, key):
        cdef size_t room = 16, slot
        cdef uint64_t head, tail
        memset(self.protected_lengths, 0, sizeof(self.protected_lengths))
        memset(self.protected_pairs, 0, sizeof(self.protected_pairs))
        memset(self.severities, 0, sizeof(self.severities))
        if not words:
            return
        if levels:
            for letter, level in SEVERITIES.items():
                self.severities[letter] = siphash(key, level)
        while room < 4 * len(words):
            room *= 2
        self.protected_mask = room - 1
        self.protected = <Word*>malloc(room * sizeof(Word))
        if self.protected == NULL:
            raise MemoryError
        memset(self.protected, 0, room * sizeof(Word))
        for word in words:
            padded = word.ljust(MAX_WORD, b"\0")
            head = int.from_bytes(padded[:8], "little")
            tail = int.from_bytes(padded[8:], "little")
            slot = word_slot(head, tail) & self.protected_mask
            while self.protected[slot].used:
                slot = (slot + 1) & self.protected_mask
            self.protected[slot] = Word(
                head, tail, siphash(key, word), True, word in levels, word.decode() in LEVELS
            )
            if word == b"not":
                self.negation = &self.protected[slot]
            for first in (word[0], ord(chr(word[0]).upper())):
                self.protected_lengths[first] |= <uint32_t>1 << len(word)
                if len(word) > 1:
                    self.protected_pairs[first] |= <uint32_t>1 << (word[1] & 31)

    def __dealloc__(self):
        free(self.weight_keys)
        free(self.weight_values)
        free(self.protected)
        free(self.known)

    cdef inline int64_t weight_of(self, uint64_t key) noexcept nogil:
        cdef size_t slot
        if self.weight_keys == NULL:
            return self.default_weight
        slot = key & self.weight_mask
        while self.weight_values[slot] >= 0:
            if self.weight_keys[slot] == key:
                return self.weight_values[slot]
            slot = (slot + 1) & self.weight_mask
        return self.default_weight

    # ------------------------------------------------------------ tokens

    cdef inline bint is_calendar(self, const uint8_t* token, size_t length) noexcept nogil:
        cdef int i
        if length < 3 or length > MAX_CALENDAR:
            return False
        if not self.calendar_pairs[token[0]] >> (token[1] & 31) & 1:
            return False
        for i in range(self.calendar_count):
            if (length == 3 or length == self.calendar_length[i]) and memcmp(
                token, self.calendar[i], length
            ) == 0:
                return True
        return False

    cdef inline bint is_variable(self, const uint8_t* token, size_t length, int held) noexcept nogil:
        return token[0] == SUBSTITUTE or (
            self.token_classes and is_of_class(self.classes, token, length, held)
        )

    cdef inline bint is_of_other_key(self, const uint8_t* text, size_t start) noexcept nogil:
        """Return whether a token is the value of a key that has no levels."""
        cdef size_t end = start - 1, at = end
        if start == 0 or text[end] != c"=":
            return False
        while (
            at and end - at <= MAX_KEY
            and (text[at - 1] == c"." or text[at - 1] == c"-"
                 or (text[at - 1] < 0x80 and is_word_byte(text[at - 1])))
        ):
            at -= 1
        if at == end:
            return False
        return end - at > MAX_KEY or not holds(&self.level_keys, text + at, end - at, True)

    cdef inline bint is_severity(
        self, const uint8_t* text, size_t length, size_t start, size_t end
    ) noexcept nogil:
        """Return whether a token is a level's letter and a day: `variants.is_severity`."""
        return (
            self.severities[text[start]] != 0
            and is_day_before_time(text, length, start + 1, end)
            and not self.is_of_other_key(text, start)
        )

    cdef inline bint may_be_protected(self, const uint8_t* token, size_t length) noexcept nogil:
        """Return whether a protected word has a token's first letter and length, endings aside."""
        cdef uint8_t last = token[length - 1]
        if last == c"." or last == c"!" or (length == 1 and last | 0x20 == c"t"):
            return True
        if length > MAX_WORD or not self.protected_lengths[token[0]] >> length & 1:
            return False
        return length == 1 or self.protected_pairs[token[0]] >> (token[1] & 31) & 1

    cdef inline const Word* find_protected(
        self, const uint8_t* text, size_t start, size_t length
    ) noexcept nogil:
        """Return the protected word that a token is, or NULL: `variants.protected_word`."""
        cdef const uint8_t* token = text + start
        cdef const Word* word
        cdef size_t digits = 0
        while length and (token[length - 1] == c"." or token[length - 1] == c"!"):
            length -= 1
        word = self.protected_at(token, length)
        if word != NULL:
            return NULL if word.level and self.is_of_other_key(text, start) else word
        if length == 1 and token[0] | 0x20 == c"t":  # of "can't"
            if start > 1 and text[start - 1] == c"'" and text[start - 2] | 0x20 == c"n":
                return self.negation
            return NULL
        if c"A" <= token[0] <= c"Z":
            return self.find_level_before_slash(token, length)
        while digits < length and c"0" <= token[digits] <= c"9":
            digits += 1
        if digits == 0 or digits + 1 >= length or token[digits] != c"/":
            return NULL
        word = self.protected_at(token + digits + 1, length - digits - 1)
        return NULL if word != NULL and word.level else word

    cdef const Word* find_level_before_slash(
        self, const uint8_t* token, size_t length
    ) noexcept nogil:
        """Return the level that a token is up to a slash, in capitals, or NULL."""
        cdef const Word* word
        cdef size_t size = 0
        while size < length and size < 9 and c"A" <= token[size] <= c"Z":
            size += 1
        if not 3 <= size <= 8 or size == length or token[size] != c"/":
            return NULL
        word = self.protected_at(token, size)
        return word if word != NULL and word.level_name else NULL

    cdef inline const Word* protected_at(self, const uint8_t* token, size_t length) noexcept nogil:
        """Return the protected word with these bytes in lower case, or NULL."""
        cdef uint8_t lower[MAX_WORD]
        cdef uint64_t head, tail
        cdef size_t slot, i
        cdef uint8_t byte
        if length > MAX_WORD or not self.protected_lengths[token[0]] >> length & 1:
            return NULL
        memset(lower, 0, MAX_WORD)
        for i in range(length):
            byte = token[i]
            if byte == 0:  # what pads the words
                return NULL
            lower[i] = byte | 0x20 if c"A" <= byte <= c"Z" else byte
        head = load64(lower)
        tail = load64(lower + 8)
        slot = word_slot(head, tail) & self.protected_mask
        while self.protected[slot].used:
            if self.protected[slot].head == head and self.protected[slot].tail == tail:
                return &self.protected[slot]
            slot = (slot + 1) & self.protected_mask
        return NULL

    cdef int take_status(
        self, const uint8_t* text, size_t text_length, size_t before, size_t before_end,
        size_t start, size_t end, bint of_request, Hashes* variant, size_t* place,
    ) except -1 nogil:
        """Add a token's HTTP status class, or kind of exit code: `variants.status_word`.

        Returns:
            1 if the digit at `place` matters, which is then set; 2 if all digits do; else 0.
        """
        if is_of_squid(text, text_length, start, end):
            place[0] = end - 3
        else:
            while end > start and (text[end - 1] == c"." or text[end - 1] == c"!"):
                end -= 1
            if may_be_exit_code(text, before, before_end) and is_integer(text, start, end) and (
                is_exit_code(&self.tables, text, text_length, before, before_end, start, end)
            ):
                push_hash(variant, self.exit_hashes[is_nonzero(text, start, end)])
                return 2
            if not (before_end != 0 and end - start == 3 and is_number(text + start) and (
                    of_request or is_between_bars(text, text_length, start)
                    or is_behind_times(text, before, before_end, start)
                    or is_behind_key(text, before, before_end, start)
                    or (is_behind_http(text, start)
                        and not is_amount_at(&self.tables, text, text_length, end))
                    or is_sent(text, text_length, start)
                    or is_before_sizes(text, text_length, start))):
                if is_before_failures(text, text_length, end) and is_integer(text, start, end):
                    push_hash(variant, self.exit_hashes[is_nonzero(text, start, end)])
                    return 2
                return 0
            place[0] = start
        if c"1" <= text[place[0]] <= c"5":
            push_hash(variant, self.status_hashes[text[place[0]] - c"0"])
        return 1

    cdef int take_words(
        self, const Part* part, Items* tokens, Hashes* variant, bint full
    ) except -1 nogil:
        cdef const uint8_t* text = part.text
        cdef size_t length = part.length, i = 0, start, first = tokens.count
        cdef size_t before = 0, before_end = 0, place, status = 0  # of a request
        cdef int held, kind, names = 0
        cdef uint64_t identity
        cdef Pair votes
        votes.low = votes.high = 0
        cdef const Word* word = NULL
        while True:
            while i < length and self.classes[text[i]] == 0:
                i += 1
            if i == length:
                break
            start = i
            held = 0
            while i < length:
                kind = self.classes[text[i]]
                if kind == 0:
                    break
                held |= kind
                i += 1
            if self.statuses:
                if (c"0" <= text[start] <= c"9" or text[start] == c"-"
                        or c"0" <= text[i - 1] <= c"9"):
                    self.take_status(
                        text, length, before, before_end, start, i, start == status, variant, &place
                    )
                before = start
                before_end = i
                if status < i:
                    status = status_of_request(&self.tables, text, length, start, i)
            if self.protected != NULL:
                word = self.find_protected(text, start, i - start)
                if word != NULL:
                    push_hash(variant, word.identity)
                elif self.is_severity(text, length, start, i):
                    push_hash(variant, self.severities[text[start]])
            if self.is_variable(text + start, i - start, held):
                if names and held & DIGIT:
                    tokens.count -= names
                names = 0
                if tokens.count == first or not tokens.at[tokens.count - 1].variable:
                    push(tokens, self.placeholder_identity, self.placeholder, part,
                         self.placeholder_weight, True)
                continue
            identity = sip(text + start, i - start, &self.secret)
            if full:
                votes = murmur(text + start, i - start, self.seed)
            push(tokens, identity, votes, part, self.weight_of(identity), False)
            tokens.at[tokens.count - 1].protected = word != NULL
            tokens.at[tokens.count - 1].level = word != NULL and word.level_name
            tokens.at[tokens.count - 1].bare = has_no_letters(text + start, i - start)
            if self.token_classes and self.is_calendar(text + start, i - start):
                names += 1
            else:
                names = 0
        return 0

    cdef int take_line(self, const Part* part, Workspace work) except -1 nogil:
        """Take the words of a line with structure, as `take_words`: `features.lines`."""
        cdef Part plain
        if may_have_escapes(part.text, part.length):
            plain = part[0]
            work.remove_escapes(&self.tables, &plain)
            work.statuses = KNOWN_STATUSES + 1  # its places are not those of the line
            return self.take_plain_line(&plain, work)
        return self.take_plain_line(part, work)

    cdef int take_plain_line(self, const Part* part, Workspace work) except -1 nogil:
        cdef const uint8_t* text = part.text
        cdef Items* tokens = &work.tokens
        cdef Hashes* variant = &work.variant
        cdef size_t start, size, end = 0, before = 0, before_end = 0, place, status = 0  # of a request
        cdef int matters
        cdef uint8_t gap
        cdef size_t first = tokens.count, variant_first = variant.count, variant_count
        cdef size_t outermost = 0, behind = first  # the outermost bracket, and its first token
        cdef uint64_t seen[8]
        cdef uint64_t again = 0
        cdef bint joined = False, of_kind
        cdef int names = 0
        cdef uint64_t identity
        cdef Pair votes
        votes.low = votes.high = 0
        cdef const Word* word = NULL
        cdef Item placeholder
        cdef Line line
        cdef Piece piece
        memset(seen, 0, sizeof(seen))
        start_line(&line, &self.tables, text, part.length)
        while next_piece(&line, &self.tables, &piece):
            start = piece.start
            size = piece.end - start
            gap = gap_before(text, end, start)
            end = piece.end
            variant_count = variant.count
            if size and self.statuses and not piece.absent:
                if piece.held & DIGIT and may_be_status(
                    text, part.length, start, piece.end, piece.held & SLASH, before, before_end
                ):
                    matters = self.take_status(
                        text, part.length, before, before_end, start, piece.end, start == status,
                        variant, &place
                    )
                    if matters == 2:
                        work.statuses += KNOWN_STATUSES + 1
                    elif matters:
                        if work.statuses < KNOWN_STATUSES:
                            work.places[work.statuses] = place
                        work.statuses += 1
                before = start
                before_end = piece.end
                if status < piece.end:
                    status = status_of_request(
                        &self.tables, text, part.length, start, piece.end
                    )
            if size and self.protected != NULL and not piece.absent:
                word = NULL
                if piece.held & DIGIT:
                    if self.is_severity(text, part.length, start, piece.end):
                        push_hash(variant, self.severities[text[start]])
                    elif piece.held & SLASH and text[start] <= c"Z":
                        word = self.find_protected(text, start, size)
                elif piece.held & SLASH and c"A" <= text[start] <= c"Z":
                    word = self.find_protected(text, start, size)
                elif self.may_be_protected(text + start, size):
                    word = self.find_protected(text, start, size)
                if word != NULL:
                    push_hash(variant, word.identity)
            if piece.variable or self.is_variable(text + start, size, piece.held):
                if names and piece.held & DIGIT:
                    tokens.count -= names
                    joined = True
                names = 0
                if tokens.count == first or not tokens.at[tokens.count - 1].variable:
                    if joined:
                        gap = tokens.at[tokens.count].gap
                    push(tokens, self.placeholder_identity, self.placeholder, part,
                         self.placeholder_weight, True)
                    tokens.at[tokens.count - 1].gap = gap
            else:
                identity = sip(text + start, size, &self.secret)
                if work.full:
                    votes = murmur(text + start, size, self.seed)
                if line.outermost != outermost:
                    outermost = line.outermost
                    behind = tokens.count
                elif behind > tokens.count:  # names were joined
                    behind = tokens.count
                push(tokens, identity, votes, part, self.weight_of(identity), False)
                tokens.at[tokens.count - 1].gap = gap
                tokens.at[tokens.count - 1].protected = word != NULL
                tokens.at[tokens.count - 1].level = word != NULL and word.level_name
                tokens.at[tokens.count - 1].bare = has_no_letters(text + start, size)
                of_kind = (
                    (piece.assigned or (self.learns and work.full))
                    and self.is_kind(text, part.length, start, size)
                )
                tokens.at[tokens.count - 1].of_kind = of_kind
                tokens.at[tokens.count - 1].assigned = piece.assigned and word == NULL and not of_kind
                tokens.at[tokens.count - 1].running = (
                    word != NULL or of_kind or not (piece.assigned or piece.nested)
                )
                # Keyed hashes are spread evenly: few words without a repeat are taken for one.
                again |= seen[identity >> 61] >> (identity & 63) & 1
                seen[identity >> 61] |= <uint64_t>1 << (identity & 63)
                if self.is_calendar(text + start, size):
                    names += 1
                else:
                    names = 0
            if variant_count < variant.count:
                reserve_hashes(&work.token_of, variant.count)
                work.token_of.at[variant_count] = tokens.count - 1
            if joined:  # names joined a placeholder
                joined = False
                while variant_count > variant_first and work.token_of.at[variant_count - 1] >= tokens.count:
                    variant_count -= 1
                    work.token_of.at[variant_count] = tokens.count - 1
        if never_closed(&line) and line.outermost == outermost:
            while behind < tokens.count:
                tokens.at[behind].running = not tokens.at[behind].variable
                behind += 1
        if tokens.count == first + 1 and tokens.at[first].variable:
            self.take_names(part, tokens, work.full)
            return 0
        if again:  # a group has a word
            drop_groups(tokens, first, variant, &work.token_of, variant_first)
        if tokens.count - first > MOST_WORDS and count_words(tokens, first) > MOST_WORDS:
            push(tokens, self.placeholder_identity, self.placeholder, part,
                 self.placeholder_weight, True)
            tokens.count -= 1
            placeholder = tokens.at[tokens.count]
            drop_values(tokens, first, &placeholder)
        return 0

    cdef inline bint is_kind(
        self, const uint8_t* text, size_t length, size_t start, size_t size
    ) noexcept nogil:
        """Return whether a word names a kind: `lines.names_kind`."""
        return (
            names_itself(&self.tables, text, length, start, start + size)
            or is_method(text + start, size)
            or is_signed(text, start, start + size)
            or is_participle(&self.tables, text, start, start + size)
            or is_numbered_process(text, length, start + size)
            or is_said(text, length, &self.tables, start, start + size)
            or is_role(&self.tables, text, start, start + size)
        )

    cdef int take_names(self, const Part* part, Items* tokens, bint full) except -1 nogil:
        """Take the names of a line of variables, if it has any, in place of its one placeholder."""
        cdef const uint8_t* text = part.text
        cdef size_t length = part.length, i = 0, start, first = tokens.count - 1
        cdef Item placeholder = tokens.at[first]
        cdef int held, names = 0
        cdef bint any_word = False
        cdef const Word* word
        cdef uint64_t identity
        cdef Pair votes
        votes.low = votes.high = 0
        tokens.count = first
        while True:
            while i < length and not is_word_byte(text[i]):
                i += 1
            if i == length:
                break
            start = i
            held = 0
            while i < length and is_word_byte(text[i]):
                held |= self.classes[text[i]]
                i += 1
            if (
                held & DIGIT or i - start < LEAST_LETTERS
                or (start and text[start - 1] == SUBSTITUTE)
            ):
                if names and held & DIGIT:
                    tokens.count -= names
                names = 0
                if tokens.count == first or not tokens.at[tokens.count - 1].variable:
                    push(tokens, self.placeholder_identity, self.placeholder, part,
                         self.placeholder_weight, True)
                continue
            identity = sip(text + start, i - start, &self.secret)
            if full:
                votes = murmur(text + start, i - start, self.seed)
            push(tokens, identity, votes, part, self.weight_of(identity), False)
            word = self.find_protected(text, start, i - start) if self.protected != NULL else NULL
            tokens.at[tokens.count - 1].protected = word != NULL
            tokens.at[tokens.count - 1].level = word != NULL and word.level_name
            tokens.at[tokens.count - 1].of_kind = (
                self.learns and full and self.is_kind(text, length, start, i - start)
            )
            tokens.at[tokens.count - 1].running = True
            names = names + 1 if self.is_calendar(text + start, i - start) else 0
        for i in range(first, tokens.count):
            any_word |= not tokens.at[i].variable
        if not any_word:
            tokens.at[first] = placeholder
            tokens.count = first + 1
        return 0

    cdef int take_word_ngrams(
        self, const Part* part, Items* tokens, size_t first, Items* features, Hashes* hashes
    ) except -1 nogil:
        cdef size_t count = tokens.count - first, i, start, n = self.ngram
        cdef uint64_t identity
        cdef Pair votes
        if count == 0:
            return 0
        if n > count:
            n = count
        hashes.count = 0
        reserve_hashes(hashes, 2 * count)
        cdef uint64_t* identities = hashes.at
        cdef uint64_t* lows = hashes.at + count
        for i in range(count):
            identities[i] = tokens.at[first + i].identity
            lows[i] = tokens.at[first + i].low
        for start in range(count - n + 1):
            identity = sip_sequence(identities + start, n, &self.secret)
            votes = murmur(<const uint8_t*>(lows + start), n * sizeof(uint64_t), self.seed)
            push(features, identity, votes, part, self.default_weight, False)
        return 0

    cdef int take_character_ngrams(self, const Part* part, Workspace work) except -1 nogil:
        cdef const uint8_t* text = part.text
        cdef const uint8_t* gram
        cdef Items* features = &work.features
        cdef Hashes* starts = &work.scratch
        cdef size_t i, count, grams, end, size, n = self.ngram
        if self.bands and n < 8 and is_ascii(text, part.length):
            if part.length == 0:
                return 0
            grams = part.length - n + 1 if part.length >= n else 1
            features.count += grams
            if not work.full:
                return 0
            reserve_hashes(starts, grams)
            size = n if part.length >= n else part.length
            for i in range(grams):
                starts.at[i] = last_word(text + i, size, size)
            return self.gather_short(part, starts.at, grams, &work.gathered)
        starts.count = 0
        reserve_hashes(starts, part.length)
        for i in range(part.length):
            if i == 0 or text[i] & 0xC0 != 0x80:
                starts.at[starts.count] = i
                starts.count += 1
        count = starts.count
        if count == 0:
            return 0
        grams = count - n + 1 if count >= n else 1
        if not work.full:  # only their number is wanted
            features.count += grams
            return 0
        if self.bands:
            self.gather_character_ngrams(part, starts, grams, work)
            features.count += grams
            return 0
        for i in range(grams):
            end = starts.at[i + n] if i + n < count else part.length
            gram, size = text + starts.at[i], end - starts.at[i]
            push(features, sip(gram, size, &self.secret), murmur(gram, size, self.seed), part,
                 self.default_weight, False)
        return 0

    # ------------------------------------------------------------ bands; see `bands`

    cdef int gather_short(
        self, const Part* part, const uint64_t* last, size_t count, Hashes32* gathered
    ) except -1 nogil:
        """Hash texts of less than eight bytes, given as `last_word`, as features for bands."""
        if self.default_weight * part.weight == 0:
            return 0
        reserve32(gathered, count)
        short_hashes(
            last, count, &self.secret.v0, part.identity_salt, gathered.at + gathered.count
        )
        gathered.count += count
        return 0

    cdef int gather_character_ngrams(
        self, const Part* part, const Hashes* starts, size_t grams, Workspace work
    ) except -1 nogil:
        """Hash all n-grams of characters for bands, without making them features."""
        cdef const uint8_t* text = part.text
        cdef Hashes* last = &work.last
        cdef size_t i, end, start, n = self.ngram, first = work.gathered.count
        cdef bint any_long = False
        reserve_hashes(last, grams)
        for i in range(grams):
            start = starts.at[i]
            end = starts.at[i + n] if i + n < starts.count else part.length
            if end - start < 8:
                last.at[i] = last_word(text + start, end - start, end - start)
            else:
                any_long = True
        self.gather_short(part, last.at, grams, &work.gathered)
        if not any_long or work.gathered.count == first:
            return 0
        for i in range(grams):
            start = starts.at[i]
            end = starts.at[i + n] if i + n < starts.count else part.length
            if end - start >= 8:
                work.gathered.at[first + i] = (
                    sip(text + start, end - start, &self.secret) ^ part.identity_salt
                ) >> 32
        return 0

    cdef int gather_features(self, Workspace work, const Items* features) except -1 nogil:
        """Gather the hashes of one event's features, unless that was done while they were taken."""
        cdef Hashes32* gathered = &work.gathered
        cdef size_t i
        if work.is_gathered:
            return 0
        gathered.count = 0
        reserve32(gathered, features.count)
        for i in range(features.count):
            if features.at[i].weight and not features.at[i].variable:
                gathered.at[gathered.count] = features.at[i].identity >> 32
                gathered.count += 1
        return 0

    cdef int take_bands(self, Workspace work, size_t event, const Items* features) except -1 nogil:
        """Store the keys and the sketch of one event."""
        cdef Hashes32* gathered = &work.gathered
        cdef uint32_t keys[BANDS]
        cdef uint8_t* out = work.band_keys_at + event * BAND_BYTES
        cdef int band, byte
        self.gather_features(work, features)
        keys_of(gathered.at, gathered.count, self.multipliers, self.increments, keys)
        for band in range(BANDS):
            for byte in range(KEY_BYTES):
                out[byte] = keys[band] >> (24 - 8 * byte)
            out += KEY_BYTES
        if work.sketch_from_bytes == 0 or work.parts[0].length >= work.sketch_from_bytes:
            self.sketch_bands(work)
        work.sketch_ends.at[event] = work.band_sketches.count
        return 0

    cdef int sketch_bands(self, Workspace work) except -1 nogil:
        """Add the sketch of an event to the pool: of its least distinct hashes.

        Of many, only those below a limit are sorted, under which enough should be; if repeats make
        them fewer, the limit is raised.
        """
        cdef const Hashes32* gathered = &work.gathered
        cdef Hashes32* likely = &work.likely
        cdef uint64_t limit = MOST32
        cdef size_t i, found
        cdef uint32_t value
        reserve16(&work.band_sketches, BAND_SKETCH + 1)
        if gathered.count > LIKELY_LEAST:
            limit = (<uint64_t>LIKELY_LEAST << 32) // gathered.count
            reserve32(likely, gathered.count)
        else:
            found = sort_least(gathered, limit, &work.sorting)
        while gathered.count > LIKELY_LEAST:
            likely.count = 0
            for i in range(gathered.count):
                value = gathered.at[i]
                likely.at[likely.count] = value
                likely.count += value <= limit
            found = sort_least(likely, limit, &work.sorting)
            if found > BAND_SKETCH or limit == MOST32:
                break
            limit = 4 * limit if limit < MOST32 // 4 else MOST32
        work.band_sketches.count += pack_sketch(
            work.sorting.at, found, work.band_sketches.at + work.band_sketches.count
        )
        return 0

    # ------------------------------------------------------------ folding

    cdef Pair fingerprint(self, Items* features, uint64_t again) noexcept nogil:
        """Compute a simhash; bit i of `again` says that feature i, of the first 64, has no vote."""
        cdef uint64_t low[PLANES]
        cdef uint64_t high[PLANES]
        cdef uint64_t low_ones[8]
        cdef uint64_t high_ones[8]
        cdef int ones = 0
        cdef int low_height = 0, high_height = 0
        cdef int64_t total = 0
        cdef size_t i
        cdef bint repeated
        cdef Item* item
        cdef Pair out
        out.high = 0
        memset(low, 0, sizeof(low))
        if self.wide:
            memset(high, 0, sizeof(high))
        for i in range(features.count):
            item = &features.at[i]
            repeated = again & 1
            again >>= 1
            if repeated:
                continue
            if item.weight > _MAX_VOTES - total:
                break  # the counters hold no more
            total += item.weight
            if item.weight == 1:
                low_ones[ones] = item.low
                high_ones[ones] = item.high
                ones += 1
                if ones == 8:
                    ones = 0
                    vote_eight(low, low_ones, &low_height)
                    if self.wide:
                        vote_eight(high, high_ones, &high_height)
                continue
            vote(low, item.low, item.weight, &low_height)
            if self.wide:
                vote(high, item.high, item.weight, &high_height)
        if ones:
            for i in range(ones, 8):  # unused places
                low_ones[i] = 0
                high_ones[i] = 0
            vote_eight(low, low_ones, &low_height)
            if self.wide:
                vote_eight(high, high_ones, &high_height)
        out.low = majority(low, low_height, total) & self.width_mask
        if self.wide:
            out.high = majority(high, high_height, total)
        return out

    cdef int least_hashes(
        self, Items* features, Hashes* chosen, Pair* out, uint64_t* key
    ) except -1 nogil:
        """Compute a minhash, and the keyed hash of the features that it chose; 0 for none."""
        cdef uint64_t last = 0
        cdef size_t i
        cdef Item* item
        out.low = out.high = key[0] = 0
        chosen.count = 0
        reserve_hashes(chosen, self.least + 1)
        if features.count > 1:
            qsort(features.at, features.count, sizeof(Item), by_votes)
        for i in range(features.count):
            item = &features.at[i]
            if item.weight == 0 or (chosen.count and item.low == last):
                continue
            if chosen.count == <size_t>self.least:
                break
            last = item.low
            out.low ^= item.low
            out.high ^= item.high
            chosen.at[chosen.count] = item.identity
            chosen.count += 1
        out.low &= self.width_mask
        if chosen.count:
            chosen.at[chosen.count] = chosen.count
            key[0] = sip_sequence(chosen.at, chosen.count + 1, &self.secret)
        return 0

    cdef int event(self, Part* parts, size_t count, Workspace work) except -1 nogil:
        """Fill tokens and features (for single words: only tokens) of one event."""
        cdef size_t i, first, rest, whole
        cdef Items* tokens = &work.tokens
        cdef Items* features = &work.features
        cdef Hashes* scratch = &work.scratch
        cdef bint full = work.full
        cdef Part part
        tokens.count = 0
        features.count = 0
        work.gathered.count = 0
        work.is_gathered = self.characters
        work.variant.count = 0
        work.statuses = 0
        work.parts = parts
        work.part_count = count
        for i in range(count):
            part = parts[i]
            rest = 0
            if part.length > self.max_bytes:
                rest = part.length - self.max_bytes
                part.length = self.max_bytes
            first = tokens.count
            if self.characters:
                if part.length and not work.sketches_only:
                    whole = before_words(&part) if self.has_words else part.length
                    self.push_text(tokens, &part, part.text, whole, False)
                self.take_character_ngrams(&part, work)
            else:
                if self.structured:
                    self.take_line(&part, work)
                else:
                    self.take_words(&part, tokens, &work.variant, full)
                if full and self.ngram > 1:
                    self.take_word_ngrams(&part, tokens, first, features, scratch)
            if rest:
                self.push_text(tokens, &part, part.text + part.length, rest, full)
                if not full:
                    features.count += self.characters
                elif self.bands and self.characters:
                    features.count += 1
                    if tokens.at[tokens.count - 1].weight:
                        reserve32(&work.gathered, 1)
                        work.gathered.at[work.gathered.count] = (
                            tokens.at[tokens.count - 1].identity >> 32
                        )
                        work.gathered.count += 1
                elif self.characters or self.ngram > 1:
                    self.push_text(features, &part, part.text + part.length, rest, True)
        return 0

    cdef int push_text(
        self, Items* items, const Part* part, const uint8_t* text, size_t length, bint full
    ) except -1 nogil:
        """Add a whole text as one feature of default weight; its votes only where they count."""
        cdef Pair votes
        votes.low = votes.high = 0
        if full:
            votes = murmur(text, length, self.seed)
        push(items, sip(text, length, &self.secret), votes, part, self.default_weight, False)
        return 0

    cdef int numbers(self, Workspace work, size_t event, Items* features) except -1 nogil:
        """Store one event's numbers, from its tokens and `features` (which may be the tokens)."""
        cdef size_t i
        cdef Items* tokens = &work.tokens
        cdef Items* source = tokens if self.words else features
        cdef uint32_t words = 0
        cdef size_t hashed = tokens.count
        cdef uint64_t again = 0, chosen, variant
        cdef bint few, salted
        cdef Pair value
        cdef Secret exact = self.secret
        for i in range(tokens.count):
            sip_word(&exact, tokens.at[i].identity)
            words += not tokens.at[i].variable
        if self.characters:
            words = <uint32_t>features.count
        if words == 0 and (tokens.count or not is_all_blank(work)):
            exact = self.secret
            hashed = self.verbatim(work, &exact)
        if work.variant.count:
            variant = sip_sequence(work.variant.at, work.variant.count, &self.secret)
            work.variants.data.as_ulonglongs[event] = variant
            sip_word(&exact, variant)
            hashed += 1
        work.put(event, sip_sequence_end(&exact, hashed), words)
        if not work.full:
            return 0
        if self.learns:
            take_slots(work, tokens)
            work.slot_ends.at[event] = work.slots.count
        if self.bands:
            return self.take_bands(work, event, features)
        salted = words >= self.salted_from
        few = self.sketched and source.count <= FEW and not salted
        if few:
            self.sketch_few(work, event, source, &again)
        elif self.sketched:
            self.sketch_many(work, event, source, salted)
        else:
            work.sketch_ends.at[event] = 0
        if self.minhash:
            self.least_hashes(features, &work.scratch, &value, &chosen)
            work.chosen.data.as_ulonglongs[event] = chosen
        else:
            if not self.once:
                again = 0
            elif not few or source != features:
                again = 0
                drop_repeats(features, &work.scratch)
            value = self.fingerprint(features, again)
        work.low.data.as_ulonglongs[event] = value.low
        if self.wide:
            work.high.data.as_ulonglongs[event] = value.high
        return 0

    cdef size_t verbatim(self, Workspace work, Secret* exact) noexcept nogil:
        """Hash the text itself of an event whose tokens are all placeholders; return its parts."""
        cdef size_t i
        cdef const Part* part
        for i in range(work.part_count):
            part = &work.parts[i]
            sip_word(exact, sip(part.text, part.length, &self.secret) ^ part.identity_salt)
        return work.part_count

    # Both add the least distinct hashes of non-placeholders to the pool of sketches.

    cdef int sketch_few(
        self, Workspace work, size_t event, Items* source, uint64_t* again
    ) except -1 nogil:
        # Keyed hashes are spread evenly, so the highest bits of each say roughly where it belongs in
        # a sorted table. The table is filled in order, with placeholders, to mark repeats in `again`.
        cdef uint64_t slots[3 * FEW]
        cdef uint64_t placeholders[FEW]
        cdef Hashes* sketches = &work.sketches
        cdef size_t room = 4, i, j, slot, variables = 0
        cdef int shift = 62
        cdef bint zero = False
        cdef uint64_t value, other
        cdef uint64_t* out
        while room < 2 * source.count:
            room *= 2
            shift -= 1
        memset(slots, 0, (room + source.count) * sizeof(uint64_t))
        for i in range(source.count):
            value = source.at[i].identity
            if source.at[i].variable:  # one for each salt
                j = 0
                while j < variables and placeholders[j] != value:
                    j += 1
                if j < variables:
                    again[0] |= <uint64_t>1 << i
                else:
                    placeholders[variables] = value
                    variables += 1
                continue
            if value == 0:  # an empty slot's mark, and the least of all
                if zero:
                    again[0] |= <uint64_t>1 << i
                zero = True
                continue
            slot = value >> shift
            while slots[slot] != 0:
                other = slots[slot]
                if other >= value:
                    if other == value:
                        again[0] |= <uint64_t>1 << i
                        break
                    slots[slot] = value
                    value = other
                slot += 1
            slots[slot] = value
        reserve_hashes(sketches, SKETCH + 1)
        out = sketches.at + sketches.count
        if zero:
            out[0] = 0
            out += 1
        for slot in range(room + source.count):  # without a branch, which would be a random one
            out[0] = slots[slot]
            out += slots[slot] != 0
        sketches.count = out - sketches.at
        work.sketch_ends.at[event] = sketches.count
        return 0

    cdef int sketch_many(
        self, Workspace work, size_t event, Items* source, bint salted
    ) except -1 nogil:
        cdef Hashes* hashes = &work.scratch
        cdef Hashes* sketches = &work.sketches
        cdef size_t i, start = sketches.count
        cdef uint64_t text = 0
        hashes.count = 0
        reserve_hashes(hashes, source.count)
        if salted:
            for i in range(source.count):
                if source.at[i].running:
                    hashes.at[hashes.count] = source.at[i].identity
                    hashes.count += 1
            text = sip_sequence(hashes.at, hashes.count, &self.secret)
            hashes.count = 0
        reserve_hashes(sketches, SKETCH)
        for i in range(source.count):
            if not source.at[i].variable:
                hashes.at[hashes.count] = source.at[i].identity
                if salted:
                    hashes.at[hashes.count] = finish(source.at[i].identity ^ text)
                hashes.count += 1
        sort_hashes(hashes.at, hashes.count, 64)
        for i in range(hashes.count):
            if i and hashes.at[i] == hashes.at[i - 1]:
                continue
            if sketches.count - start == SKETCH:
                break
            sketches.at[sketches.count] = hashes.at[i]
            sketches.count += 1
        work.sketch_ends.at[event] = sketches.count
        return 0

    # ------------------------------------------------------------ batches

    cdef Known* place_of(
        self, const Part* part, uint8_t* text, uint64_t* hashed, bint* same
    ) noexcept nogil:
        """Return where a line is remembered, or would be, and whether it is; NULL if it is too long."""
        cdef Known* known
        cdef int i
        same[0] = False
        if not 0 < part.length <= KNOWN_BYTES or part.length > self.max_bytes:
            return NULL
        hashed[0] = without_digits(part.text, part.length, text)
        known = &self.known[hashed[0] >> 32 & (KNOWN - 1)]
        if known.hashed == hashed[0] and known.length == part.length and memcmp(
            known.text, text, part.length
        ) == 0:
            for i in range(known.statuses):
                if part.text[known.places[i]] != known.digits[i]:
                    return known
            same[0] = known.used = True
        return known

    cdef int line(self, Part* part, Workspace work, size_t event) except -1 nogil:
        """Store the exact hash of a line: that of an equal one before it, but for digits, if any."""
        cdef uint8_t text[KNOWN_BYTES + 16]
        cdef uint64_t hashed
        cdef bint same
        cdef int i
        cdef Known* known = self.place_of(part, text, &hashed, &same)
        if same:
            work.put(event, known.exact, known.words)
            work.variants.data.as_ulonglongs[event] = known.variant
            return 0
        self.event(part, 1, work)
        self.numbers(work, event, &work.tokens)
        if known == NULL or work.words.data.as_uints[event] == 0 or work.statuses > KNOWN_STATUSES:
            return 0
        if known.used:  # lines that come once shall not take the places of others
            known.used = False
            return 0
        known.hashed = hashed
        known.exact = work.exact.data.as_ulonglongs[event]
        known.variant = work.variants.data.as_ulonglongs[event]
        known.words = work.words.data.as_uints[event]
        known.length = part.length
        known.statuses = work.statuses
        for i in range(work.statuses):
            known.places[i] = work.places[i]
            known.digits[i] = part.text[work.places[i]]
        memcpy(known.text, text, part.length)
        return 0

    cdef Workspace batch(
        self, tuple texts, segments, bint full, size_t sketch_from_bytes, bint sketches_only
    ):
        cdef size_t parts_count = len(texts), i, first = 0, last
        cdef size_t events = parts_count if segments is None else len(segments.ends)
        cdef array.array ends = None, weights = None, salts = None, identity_salts = None
        cdef Workspace work = Workspace(events, full, self.wide, self.minhash, self.bands)
        cdef Items* folded = (
            &work.features if self.characters or self.ngram > 1 else &work.tokens
        )
        work.sketch_from_bytes = sketch_from_bytes
        work.sketches_only = sketches_only
        cdef bint plain = segments is None
        if not plain:
            ends, weights = segments.ends, segments.weights
            salts, identity_salts = segments.salts, segments.identity_salts
            check_typecodes(parts_count, ends, weights, salts, identity_salts)
        cdef Part* parts = <Part*>malloc((parts_count + 1) * sizeof(Part))
        if parts == NULL:
            raise MemoryError
        try:
            for i in range(parts_count):
                text = <bytes?>texts[i]
                parts[i].text = <const uint8_t*>PyBytes_AS_STRING(text)
                parts[i].length = PyBytes_GET_SIZE(text)
                parts[i].weight = 1 if plain else weights.data.as_uints[i]
                parts[i].salt = 0 if plain else salts.data.as_ulonglongs[i]
                parts[i].identity_salt = 0 if plain else identity_salts.data.as_ulonglongs[i]
            with nogil:
                if plain and not full and self.known != NULL and take_turn(&self.known_taken):
                    try:
                        for i in range(events):
                            self.line(parts + i, work, i)
                    finally:
                        end_turn(&self.known_taken)
                else:
                    for i in range(events):
                        last = i + 1 if plain else ends.data.as_uints[i]
                        self.event(parts + first, last - first, work)
                        first = last
                        if sketches_only:
                            self.gather_features(work, folded)
                            self.sketch_bands(work)
                            work.sketch_ends.at[i] = work.band_sketches.count
                        else:
                            self.numbers(work, i, folded)
        finally:
            free(parts)
        return work

    def scan(self, texts, bint full, size_t sketch_from_bytes=0):
        cdef Workspace work = self.batch(tuple(texts), None, full, sketch_from_bytes, False)
        return work.fingerprints(self.learns, self.bands)

    def exact_of(self, bytes text not None):
        cdef uint8_t copy[KNOWN_BYTES + 16]
        cdef uint64_t hashed, exact = 0
        cdef bint same = False
        cdef Part part
        cdef Known* known
        cdef Workspace work
        if self.known != NULL and take_turn(&self.known_taken):
            part.text = <const uint8_t*>PyBytes_AS_STRING(text)
            part.length = PyBytes_GET_SIZE(text)
            known = self.place_of(&part, copy, &hashed, &same)
            if same:
                exact = known.exact
            end_turn(&self.known_taken)
        if not same:
            work = self.batch((text,), None, False, 0, False)
            exact = work.exact.data.as_ulonglongs[0]
        return exact

    def scan_segments(self, segments, bint full):
        cdef Workspace work = self.batch(tuple(segments.texts), segments, full, 0, False)
        return work.fingerprints(self.learns, self.bands)

    def sketches(self, texts):
        if not self.bands:
            raise ValueError("only bands have sketches of their own")
        return self.batch(tuple(texts), None, True, 0, True).cut_bands()

    def fold(self, events, bint full):
        cdef size_t i, count = len(events), length
        cdef Workspace work = Workspace(count, full, self.wide, self.minhash, self.bands)
        cdef bytes text
        cdef const uint8_t* at
        cdef Part part
        cdef Pair votes
        part.weight = 1
        votes.low = votes.high = 0
        for i in range(count):
            work.tokens.count = 0
            for feature, weight, salt in events[i]:
                part.salt, part.identity_salt = salt
                text = <bytes?>feature
                if not isinstance(weight, int) or not 0 <= weight <= MAX_WEIGHT:
                    raise ValueError(
                        f"a weight is a whole number from 0 to {MAX_WEIGHT}: {weight!r}"
                    )
                at, length = <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
                if full:
                    votes = murmur(at, length, self.seed)
                push(&work.tokens, sip(at, length, &self.secret), votes, &part, weight, False)
            self.numbers(work, i, &work.tokens)
        return work.fingerprints(self.learns, self.bands)


cdef check_typecodes(
    size_t parts, array.array ends, array.array weights, array.array salts,
    array.array identity_salts,
):
    """Check segments, which come from Python, so that nothing is read past its end."""
    cdef size_t i, before = 0, events = len(ends)
    if ends.typecode != "I" or weights.typecode != "I":
        raise TypeError("ends and weights are arrays of type 'I'")
    if salts.typecode != "Q" or identity_salts.typecode != "Q":
        raise TypeError("salts are arrays of type 'Q'")
    for column in (weights, salts, identity_salts):
        if len(column) != <Py_ssize_t>parts:
            raise ValueError("there is one weight and one salt of each kind a part")
    for i in range(events):
        if ends.data.as_uints[i] < before:
            raise ValueError("ends do not ascend")
        before = ends.data.as_uints[i]
    if before != parts:
        raise ValueError("the last end is not the number of parts")


cdef inline bint is_ascii(const uint8_t* text, size_t length) noexcept nogil:
    cdef uint8_t every = 0
    cdef size_t i
    for i in range(length):
        every |= text[i]
    return every < 0x80


cdef inline size_t before_words(const Part* part) noexcept nogil:
    """Return the size of a text without the words that follow it; whole if there are none."""
    cdef size_t i
    for i in range(1, part.length):
        if part.text[i] == c" " and part.text[i - 1] == c" ":
            return i - 1 if i > 1 else part.length
    return part.length


cdef inline bint is_repeated(
    const Items* tokens, size_t count, size_t group,
    const Hashes* variant, const Hashes* token_of, size_t variant_count, size_t variant_first
) noexcept nogil:
    """Return whether the last tokens, `group` of them, repeat those before, variants included."""
    cdef size_t i, ours, theirs
    for i in range(count - group, count):
        if tokens.at[i].identity != tokens.at[i - group].identity:
            return False
    ours = variant_count
    while ours > variant_first and token_of.at[ours - 1] >= count - group:
        ours -= 1
    theirs = ours
    while theirs > variant_first and token_of.at[theirs - 1] >= count - 2 * group:
        theirs -= 1
    if variant_count - ours != ours - theirs:
        return False
    for i in range(ours, variant_count):
        if (variant.at[i] != variant.at[i - ours + theirs]
                or token_of.at[i] != token_of.at[i - ours + theirs] + group):
            return False
    return True


cdef inline uint8_t gap_before(const uint8_t* text, size_t end, size_t start) noexcept nogil:
    """Return what is between two tokens: `BETWEEN_ITEMS`, `KEYED`, both or nothing of these."""
    cdef uint8_t found = 0, byte
    while end < start:
        byte = text[end]
        end += 1
        if byte == c"=":
            found |= KEYED
        elif (byte == c"," or byte == c";" or byte == c"|" or byte == c")" or byte == c"]"
              or byte == c"}" or byte == c">" or byte == c"\n"):
            found |= BETWEEN_ITEMS
    return found


cdef size_t count_words(const Items* tokens, size_t first) noexcept nogil:
    cdef size_t i, count = 0
    for i in range(first, tokens.count):
        count += not tokens.at[i].variable
    return count


cdef void drop_values(Items* tokens, size_t first, const Item* placeholder) noexcept nogil:
    """Put placeholders in place of the words that are values of keys: `lines._without_values`."""
    cdef size_t read, count = first
    cdef uint32_t order
    for read in range(first, tokens.count):
        if not tokens.at[read].variable and not tokens.at[read].assigned:
            tokens.at[count] = tokens.at[read]
            count += 1
        elif count == first or not tokens.at[count - 1].variable:
            order = tokens.at[read].order
            tokens.at[count] = placeholder[0]
            tokens.at[count].order = order
            count += 1
    tokens.count = count


cdef void drop_groups(
    Items* tokens, size_t first, Hashes* variant, Hashes* token_of, size_t variant_first
) noexcept nogil:
    """Keep groups that hold a placeholder and repeat in a row once: `lines._without_repeats`.

    Such a group has a placeholder as far from its end as the group before it. One bit a token says
    where placeholders are, so few groups are compared.
    """
    cdef size_t read, count = first, variant_count = variant_first, variant_next = variant_first, nearest, group, i
    cdef uint64_t places = 0, other  # bit n: whether the n-th token from the last is a placeholder
    cdef const Item* last
    for read in range(first, tokens.count):
        if count != read:
            tokens.at[count] = tokens.at[read]
        while variant_next < variant.count and token_of.at[variant_next] == read:
            variant.at[variant_count] = variant.at[variant_next]
            token_of.at[variant_count] = count
            variant_count += 1
            variant_next += 1
        count += 1
        places = places << 1 | tokens.at[count - 1].variable
        if places & (places - 1) == 0:
            continue  # at most one
        nearest = lowest_bit(places)
        other = places & (places - 1)
        last = &tokens.at[count - 1]
        while other:
            group = lowest_bit(other) - nearest
            if group > _MAX_GROUP or 2 * group > count - first:
                break
            if group == _LEAST_GROUP and not (
                (last - 1).gap & BETWEEN_ITEMS or last.gap & KEYED
            ):
                other &= other - 1
                continue
            if (group > nearest and last.identity == (last - group).identity
                    and is_repeated(tokens, count, group, variant, token_of, variant_count, variant_first)):
                count -= group
                while variant_count > variant_first and token_of.at[variant_count - 1] >= count:
                    variant_count -= 1
                places = 0
                for i in range(count - first if count - first < 64 else 64):
                    places |= <uint64_t>tokens.at[count - 1 - i].variable << i
                break
            other &= other - 1
    tokens.count = count
    variant.count = variant_count


cdef inline uint64_t word_slot(uint64_t head, uint64_t tail) noexcept nogil:
    return ((head ^ rotate(tail, 29)) * <uint64_t>0x9E3779B97F4A7C15) >> 32


def jaccard(bytes left not None, bytes right not None):
    """See `clustering.linkage.reference_jaccard`."""
    return similarity(
        PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left) // 8,
        PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right) // 8, 0,
    )


def admitting(bytes sketch not None, list owners not None, list sketches not None, double least):
    """See `clustering.linkage.reference_admitting`."""
    cdef const char* a = PyBytes_AS_STRING(sketch)
    cdef size_t ours = PyBytes_GET_SIZE(sketch) // 8, theirs
    cdef bytes other
    cdef list found = []
    for owner in owners:
        other = sketches[owner]
        if other is None:
            raise TypeError("a sketch is bytes")
        theirs = PyBytes_GET_SIZE(other) // 8
        if theirs == 0 or similarity(a, ours, PyBytes_AS_STRING(other), theirs, least) >= least:
            found.append(owner)
    return found


cdef double similarity(
    const char* a, size_t ours, const char* b, size_t theirs, double least
) noexcept nogil:
    """The Jaccard index; -1 if it is below the least one, which a few hashes mostly show."""
    cdef size_t i = 0, j = 0, union = 0, common = 0
    cdef bint is_sample = ours >= SKETCH or theirs >= SKETCH
    cdef size_t most = SKETCH if is_sample else ours + theirs
    # With s of them common, m not: s / (s + m) >= least means m <= (1 - least) (s + m), and where
    # both are whole, 2 s + m is their sum.
    cdef double may_miss = most * (1 - least) / (1 if is_sample else 1 + least) + 1e-6
    cdef uint64_t x, y
    while union < most and (i < ours or j < theirs):
        # memcpy: a bytes object's contents need not be aligned to eight bytes.
        if i < ours:
            memcpy(&x, a + 8 * i, 8)
        if j < theirs:
            memcpy(&y, b + 8 * j, 8)
        union += 1
        if j == theirs or (i < ours and x < y):
            i += 1
        elif i == ours or y < x:
            j += 1
        else:
            common += 1
            i += 1
            j += 1
        if union - common > may_miss:
            return -1
    return <double>common / <double>union if union else 1.0


_OURS = (
    SKETCH, MAX_WORD, MAX_KEY, MAX_WORDS, MOST_WORDS, REPEATED, LEAST_AROUND, VALUE_BITS,
    WORDS_BITS, COUNTED_STEP, MOST_COUNTED,
    BANDS, ROWS, KEY_BYTES, BAND_BYTES, BAND_SKETCH,
)
_THEIRS = (
    SKETCH_SIZE, MAX_WORD_BYTES, MAX_KEY_BYTES, pieces.MAX_WORDS,
    one_off.MAX_WORDS, one_off.REPEATED, one_off.LEAST_AROUND, one_off.VALUE_BITS,
    one_off.WORDS_BITS, one_off.COUNTED_STEP, one_off.MOST_COUNTED,
    bands.BANDS, bands.ROWS, bands.KEY_BYTES, bands.BITS // 8, sketches.SKETCH,
)
if _OURS != _THEIRS or MAX_VOTES >> PLANES:
    raise ImportError("the native kernel was built for another version: reinstall")
