# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""The tables in native memory (`store.ReferenceTables` in Python), those of bands
(`store.ReferenceBandTables`), and native entries (`entries.ReferenceEntries` in Python).

Each table is a hash table with chains. An entry's bucket in a table is the hash of its group and of
the table's prefix bits. Entries of one bucket are linked in both directions, so an insert or delete
changes a few words a table, however long the chain. A query walks one chain a table and compares
every entry on it, newest first. The bits of an entry say whether an earlier table has it too; then
it is skipped, so no set of entries seen is needed.

With many entries, a query mostly waits for memory. So the chains are walked in parallel, one step
each, and the memory of the next step is prefetched. An entry's bits, group, owner and links are
adjacent: with few tables a candidate costs one cache line.

Memory of a stored fingerprint with T tables: 24 bytes, 8 T for the links, and at most 4 T for the
heads of the buckets; the memory doubles as it grows, so up to twice that. T = 4: 72 to 144 bytes.
"""

import os

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from stream_dedup.tables._bytes cimport taken

from stream_dedup.tables import entries as _entries, sketches as _sketches
from stream_dedup.tables.entries import (
    GROUP_BYTES,
    OWNER_BYTES,
    ReferenceBandEntries,
    ReferenceEntries,
)
from stream_dedup.tables.store import Found, Similar

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define popcount64(x) __builtin_popcountll(x)
    #else
    static inline int popcount64(unsigned long long x) {
        int n = 0;
        for (; x; x &= x - 1) n++;
        return n;
    }
    #endif
    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(address) __builtin_prefetch(address)
    #else
    #define prefetch(address) ((void)0)
    #endif
    """
    int popcount64(uint64_t) noexcept nogil
    void* PyList_GET_ITEM(list, Py_ssize_t)  # borrowed, and not counted
    void** PySequence_Fast_ITEMS(list)
    void prefetch(const void*) noexcept nogil

cdef enum:
    NONE = 0xFFFFFFFF
    FIRST_ROOM = 256
    MARK_BYTES = 3
    FEW = 24
    SKETCH = 128
    AHEAD = 16  # numbers whose sketches are asked for in advance
    MOST_WIDTH_BYTES = 128  # of a fingerprint: `entries.MAX_BANDS_WIDTH`
    FIXED_BYTES = 2 * 8 + 8 + 4 + 8 + 6 * 4  # a packed row's numbers, and the lengths of its parts

# Random for each process: whoever writes the text cannot choose which fingerprints share a bucket.
cdef uint64_t _PROCESS_SALT = int.from_bytes(os.urandom(8), "little")

cdef double FEW_JACCARD = _sketches.FEW_JACCARD
if (FEW, SKETCH, MARK_BYTES) != (_sketches.FEW, _sketches.SKETCH, _entries.MARK_BYTES):
    raise ImportError("the native tables were built for another version: reinstall")


cdef inline uint64_t mix(uint64_t low, uint64_t high, uint32_t group) noexcept nogil:
    cdef uint64_t x = low ^ _PROCESS_SALT ^ (high * <uint64_t>0x9E3779B97F4A7C15)
    x ^= (<uint64_t>group + 1) * <uint64_t>0xD6E8FEB86659FD93
    x = (x ^ (x >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    x = (x ^ (x >> 29)) * <uint64_t>0xBF58476D1CE4E5B9
    return x ^ (x >> 32)


cdef struct EntryHeader:
    uint32_t group  # of a free entry: the next free one
    uint32_t owner  # NONE if it is free


@cython.internal
cdef class EntryPool:
    """Entries of one size in one block of memory, those free for reuse in a list.

    Each entry begins with an `EntryHeader`. A subclass sets `stride` before its first `grow`.
    """

    cdef char* entries
    cdef uint32_t* heads  # of the chains
    cdef size_t stride, heads_room
    cdef uint32_t room, used, free_entry, count
    cdef readonly size_t crowded  # only tables of bands count it

    def __cinit__(self):
        self.free_entry = NONE

    def __dealloc__(self):
        free(self.entries)
        free(self.heads)

    def __len__(self):
        return self.count

    cdef int grow(self, uint32_t room) except -1:
        """Make room for so many entries, and chains for them."""
        raise NotImplementedError  # a `cdef` method cannot be abstract; each subclass has one

    @cython.final
    cdef inline EntryHeader* header(self, uint32_t number) noexcept nogil:
        return <EntryHeader*>(self.entries + self.stride * number)

    @cython.final
    cdef inline int64_t allocate(self, uint32_t group, uint32_t owner) except -1:
        """Return the number of an entry for a group and an owner, which is on no chain yet."""
        cdef uint32_t number = self.free_entry
        if owner == NONE:
            raise ValueError("owners are below 4 294 967 295")
        if number != NONE:
            self.free_entry = self.header(number).group
        else:
            if self.used == self.room:
                self.grow(2 * self.room)
            number = self.used
            self.used += 1
        self.header(number).group = group
        self.header(number).owner = owner
        self.count += 1
        return number

    @cython.final
    cdef inline int check(self, uint32_t number) except -1:
        if number >= self.used or self.header(number).owner == NONE:
            raise KeyError(number)
        return 0

    @cython.final
    cdef inline void release(self, uint32_t number) noexcept nogil:
        """Make an entry that is on no chain free."""
        self.header(number).owner = NONE
        self.header(number).group = self.free_entry
        self.free_entry = number
        self.count -= 1


cdef struct Entry:
    EntryHeader header
    uint64_t low
    uint64_t high
    # next and previous entry in the first table, in the second, …
    uint32_t links[2]


cdef class NativeTables(EntryPool):
    """See `store.Tables`."""

    cdef uint64_t* mask_low
    cdef uint64_t* mask_high
    cdef uint32_t** starts  # a query's chains: the head of each, …
    cdef uint32_t* chains  # … the next entry of each unfinished chain, …
    cdef uint32_t* chain_tables  # … and its table
    cdef uint32_t tables, k, heads_most

    def __cinit__(self, layout):
        cdef uint32_t table
        self.k = layout.k
        self.mask_low = <uint64_t*>calloc(layout.tables, 8)
        self.mask_high = <uint64_t*>calloc(layout.tables, 8)
        self.starts = <uint32_t**>calloc(layout.tables, sizeof(uint32_t*))
        self.chains = <uint32_t*>calloc(layout.tables, 4)
        self.chain_tables = <uint32_t*>calloc(layout.tables, 4)
        if (
            self.mask_low == NULL
            or self.mask_high == NULL
            or self.starts == NULL
            or self.chains == NULL
            or self.chain_tables == NULL
        ):
            raise MemoryError
        self.tables = layout.tables
        self.stride = (sizeof(Entry) + 8 * (<size_t>layout.tables - 1) + 7) // 8 * 8
        for table in range(self.tables):
            self.mask_low[table] = layout.masks[table] & 0xFFFFFFFFFFFFFFFF
            self.mask_high[table] = layout.masks[table] >> 64
        # Without groups, more heads than prefixes would stay empty.
        self.heads_most = 1 << min(26, max(layout.prefix_bits) + 4)
        self.grow(FIRST_ROOM)

    def __dealloc__(self):
        free(self.mask_low)
        free(self.mask_high)
        free(self.starts)
        free(self.chains)
        free(self.chain_tables)

    cdef inline Entry* at(self, uint32_t entry) noexcept nogil:
        return <Entry*>(self.entries + self.stride * entry)

    cdef inline uint32_t* head_of(self, uint32_t table, const Entry* entry) noexcept nogil:
        cdef uint64_t hashed = mix(
            entry.low & self.mask_low[table], entry.high & self.mask_high[table], entry.header.group
        )
        return &self.heads[<size_t>table * self.heads_room + (hashed & (self.heads_room - 1))]

    cdef inline void ask_for(self, uint32_t number, uint32_t table) noexcept nogil:
        """Prefetch an entry and its links in a table."""
        cdef const Entry* entry = self.at(number)
        prefetch(entry)
        prefetch(&entry.links[2 * table])

    cdef int grow(self, uint32_t room) except -1:
        if room > 0x7FFFFFFF:
            raise MemoryError("more than 2 147 483 647 fingerprints")
        self.entries = <char*>resized(self.entries, self.stride * room)
        self.room = room
        self.rehash(min(room, self.heads_most))
        return 0

    cdef int rehash(self, uint32_t heads_room) except -1:
        cdef uint32_t entry, table
        if heads_room == self.heads_room:
            return 0
        self.heads = <uint32_t*>resized(self.heads, <size_t>heads_room * self.tables * 4)
        self.heads_room = heads_room
        memset(self.heads, 0xFF, <size_t>heads_room * self.tables * 4)
        with nogil:
            for entry in range(self.used):
                if self.at(entry).header.owner != NONE:
                    for table in range(self.tables):
                        self.link(table, entry)
        return 0

    cdef inline void link(self, uint32_t table, uint32_t number) noexcept nogil:
        cdef Entry* entry = self.at(number)
        cdef uint32_t* head = self.head_of(table, entry)
        entry.links[2 * table] = head[0]
        entry.links[2 * table + 1] = NONE
        if head[0] != NONE:
            self.at(head[0]).links[2 * table + 1] = number
        head[0] = number

    def insert(self, fingerprint, uint32_t group, uint32_t owner):
        cdef uint32_t number, table
        cdef uint64_t low = fingerprint & 0xFFFFFFFFFFFFFFFF
        cdef uint64_t high = fingerprint >> 64
        cdef Entry* entry
        number = <uint32_t>self.allocate(group, owner)
        entry = self.at(number)
        entry.low = low
        entry.high = high
        for table in range(self.tables):
            self.link(table, number)
        return number

    def delete(self, uint32_t number):
        cdef uint32_t table, after, before
        cdef Entry* entry
        self.check(number)
        entry = self.at(number)
        for table in range(self.tables):
            after = entry.links[2 * table]
            before = entry.links[2 * table + 1]
            if after != NONE:
                self.at(after).links[2 * table + 1] = before
            if before != NONE:
                self.at(before).links[2 * table] = after
            else:
                self.head_of(table, entry)[0] = after
        self.release(number)

    def fingerprint(self, uint32_t number):
        self.check(number)
        return self.at(number).low | <object>self.at(number).high << 64

    def query(self, fingerprint, uint32_t group, uint64_t max_candidates):
        cdef uint64_t low = fingerprint & 0xFFFFFFFFFFFFFFFF
        cdef uint64_t high = fingerprint >> 64
        cdef uint64_t apart_low, apart_high, hashed, candidates = 0
        cdef uint32_t table, earlier, number, distance, chain, chains = 0
        cdef const Entry* entry
        cdef bint truncated = False, seen
        cdef list owners = [], distances = []
        for table in range(self.tables):
            hashed = mix(low & self.mask_low[table], high & self.mask_high[table], group)
            self.starts[table] = &self.heads[
                <size_t>table * self.heads_room + (hashed & (self.heads_room - 1))
            ]
            prefetch(self.starts[table])
        for table in range(self.tables):
            number = self.starts[table][0]
            if number != NONE:
                self.chains[chains] = number
                self.chain_tables[chains] = table
                chains += 1
                self.ask_for(number, table)
        chain = 0
        while chains:
            if chain >= chains:
                chain = 0
            number, table = self.chains[chain], self.chain_tables[chain]
            entry = self.at(number)
            number = entry.links[2 * table]
            if number != NONE:
                self.chains[chain] = number
                self.ask_for(number, table)
                chain += 1
            else:  # the chain has ended: the last one takes its place
                chains -= 1
                self.chains[chain] = self.chains[chains]
                self.chain_tables[chain] = self.chain_tables[chains]
            apart_low = entry.low ^ low
            apart_high = entry.high ^ high
            # Entries of other prefixes and groups in the same bucket are not candidates.
            if (
                apart_low & self.mask_low[table] == 0
                and apart_high & self.mask_high[table] == 0
                and entry.header.group == group
            ):
                if candidates == max_candidates:
                    truncated = True
                    break
                candidates += 1
                distance = popcount64(apart_low) + popcount64(apart_high)
                if distance <= self.k:
                    seen = False
                    for earlier in range(table):
                        if (
                            apart_low & self.mask_low[earlier] == 0
                            and apart_high & self.mask_high[earlier] == 0
                        ):
                            seen = True
                            break
                    if not seen:
                        owners.append(entry.header.owner)
                        distances.append(distance)
        return Found(owners, distances, candidates, truncated)

    def nbytes(self):
        return self.room * self.stride + <size_t>self.heads_room * self.tables * 4


# ---------------------------------------------------------------- sketches


cdef inline double similarity(
    const char* left, Py_ssize_t left_bytes, const char* right, Py_ssize_t right_bytes
) noexcept nogil:
    """Return the Jaccard index of two sketches: see `sketches.reference_jaccard`."""
    cdef const uint16_t* a = <const uint16_t*>left  # a bytes object's contents are aligned to two
    cdef const uint16_t* b = <const uint16_t*>right
    cdef size_t ours = left_bytes // 2, theirs = right_bytes // 2, i = 1, j = 1
    cdef size_t union = 0, common = 0
    cdef uint32_t x, y, down_a, down_b
    if ours < 2 or theirs < 2:
        return ours < 2 and theirs < 2
    if a[0] >> 1 == b[0] >> 1:
        while i < ours and j < theirs:
            x, y = a[i], b[j]
            union += 1
            common += x == y  # without a branch, which would be a random one
            i += x <= y
            j += y <= x
    else:
        down_a = min(<uint32_t>(max(a[0], b[0]) >> 1) - (a[0] >> 1), 31)
        down_b = min(<uint32_t>(max(a[0], b[0]) >> 1) - (b[0] >> 1), 31)
        while i < ours and j < theirs:
            x, y = a[i] >> down_a, b[j] >> down_b
            union += 1
            common += x == y
            if x <= y:
                i = behind(a, i, ours, down_a)
            if y <= x:
                j = behind(b, j, theirs, down_b)
        while i < ours and not b[0] & 1:
            union += 1
            i = behind(a, i, ours, down_a)
        while j < theirs and not a[0] & 1:
            union += 1
            j = behind(b, j, theirs, down_b)
        return <double>common / <double>union
    # What is left of one of them counts if the other has no more hashes than its sketch.
    if not b[0] & 1:
        union += ours - i
    if not a[0] & 1:
        union += theirs - j
    return <double>common / <double>union


cdef inline size_t behind(
    const uint16_t* values, size_t at, size_t count, uint32_t down
) noexcept nogil:
    """Return the place behind the values that are equal to this one, so many bits left out."""
    cdef uint32_t value = values[at] >> down
    while at < count and values[at] >> down == value:
        at += 1
    return at


cdef Py_ssize_t packed_sketch_size(bytes sketch) except -1:
    """Return the size of a packed sketch; see `sketches.reference_pack`."""
    cdef const uint16_t* numbers = <const uint16_t*>PyBytes_AS_STRING(sketch)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(sketch) // 2 - 1, at
    cdef bint descends = False
    if PyBytes_GET_SIZE(sketch) == 0:
        return 0
    if PyBytes_GET_SIZE(sketch) % 2:
        raise ValueError("numbers of a sketch have two bytes each")
    for at in range(1, count):
        descends |= numbers[at] >= numbers[at + 1]
    if max(<Py_ssize_t>numbers[0], count) > 255 or descends:
        raise ValueError("this is no sketch")
    return 2 + count + (((numbers[count] >> 8) + count + 7) // 8 if count else 0)


cdef char* put_sketch(char* to, bytes sketch) noexcept:
    """Pack a sketch whose size was found; return where it ends."""
    cdef const uint16_t* numbers = <const uint16_t*>PyBytes_AS_STRING(sketch)
    cdef Py_ssize_t count = PyBytes_GET_SIZE(sketch) // 2 - 1, at
    cdef uint32_t bit = 0
    cdef char* row = to + 2 + count
    if count < 0:
        return to
    to[0], to[1] = <char>numbers[0], <char>count
    if count == 0:
        return row
    memset(row, 0, ((numbers[count] >> 8) + count + 7) // 8)
    for at in range(count):
        to[2 + at] = <char>numbers[1 + at]
        bit = (numbers[1 + at] >> 8) + <uint32_t>at
        row[bit >> 3] |= <char>(128 >> (bit & 7))
    return row + (bit >> 3) + 1


def pack_sketch(bytes sketched not None):
    """See `sketches.reference_pack`."""
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, packed_sketch_size(sketched))
    put_sketch(PyBytes_AS_STRING(packed), sketched)
    return packed


def unpack_sketch(bytes packed not None):
    """See `sketches.reference_unpack`."""
    cdef const uint8_t* stored = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed), count, found = 0, at
    cdef uint32_t byte_, place, value, before = 0
    cdef bytes sketch
    cdef uint16_t* numbers
    cdef bint sound
    if size == 0:
        return b""
    count = stored[1] if size > 1 else 0
    sound = size >= 2 + count and (size == 2 + count or stored[size - 1] != 0)
    sketch = PyBytes_FromStringAndSize(NULL, 2 + 2 * count)
    numbers = <uint16_t*>PyBytes_AS_STRING(sketch)
    numbers[0] = stored[0]
    for at in range(2 + count, size if sound else 0):
        byte_, place = stored[at], <uint32_t>(8 * (at - 2 - count))
        while byte_:
            if byte_ & 128:
                if found == count:
                    sound = False
                    break
                value = (place - <uint32_t>found << 8) + stored[2 + found]
                sound = sound and value <= 0xFFFF and (found == 0 or value > before)
                before = value
                found += 1
                numbers[found] = <uint16_t>value
            byte_ = byte_ << 1 & 0xFF
            place += 1
    if not sound or found != count:
        raise ValueError("a packed sketch is damaged")
    return sketch


def jaccard(bytes left not None, bytes right not None):
    """See `sketches.reference_jaccard`."""
    return similarity(
        PyBytes_AS_STRING(left), PyBytes_GET_SIZE(left),
        PyBytes_AS_STRING(right), PyBytes_GET_SIZE(right),
    )


cdef inline void prefetch_sketch(list sketches, size_t number) noexcept:
    cdef const char* item = <const char*>PyList_GET_ITEM(sketches, number)
    cdef uint32_t line
    for line in range(0, 320, 64):  # an object of 33 bytes and 258 of the sketch
        prefetch(item + line)


def alike(const uint32_t[::1] pairs not None, list sketches not None, double jaccard):
    """See `sketches.reference_alike`."""
    cdef Verifier verifier = Verifier()
    cdef array.array found = array.array("I")
    cdef size_t at, count = pairs.shape[0], known = len(sketches)
    cdef bytes one, other, last = None
    if count % 2:
        raise ValueError("a pair has two numbers")
    for at in range(count):
        if pairs[at] >= known:
            raise IndexError(f"there is no sketch {pairs[at]}")
    for at in range(0, count, 2):
        if at + AHEAD < count:
            prefetch_sketch(sketches, pairs[at + AHEAD])
        one, other = sketches[pairs[at]], sketches[pairs[at + 1]]
        if one is None or other is None:
            raise TypeError("a sketch is bytes")
        if other is not last:
            last = other
            verifier.begin(other, jaccard)
        if not one or verifier.admits(one):
            found.append(pairs[at])
            found.append(pairs[at + 1])
    return found


cdef class Verifier:
    """Compares one sketch with those of owners.

    The values of the sketch are bits among all of 16 bits, so that those of another one of the same
    precision are looked up, and not merged with them, which takes a step that depends on the last
    for each.
    """

    cdef const char* sketch
    cdef Py_ssize_t size
    cdef double least, few_least
    cdef uint64_t bits[1024]
    cdef uint16_t marked[SKETCH]  # the values whose bits are set
    cdef size_t marked_count

    cdef inline void begin(self, bytes sketch, double least) noexcept:
        cdef size_t i
        for i in range(self.marked_count):
            self.bits[self.marked[i] >> 6] = 0
        self.marked_count = 0
        self.sketch, self.size = PyBytes_AS_STRING(sketch), PyBytes_GET_SIZE(sketch)
        self.least = least
        self.few_least = max(least, FEW_JACCARD)

    cdef inline bint admits(self, bytes other) noexcept:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(other)
        cdef double least = self.few_least if min(size, self.size) // 2 - 1 < FEW else self.least
        return self.similarity(PyBytes_AS_STRING(other), size) >= least

    cdef inline double similarity(self, const char* other, Py_ssize_t size) noexcept:
        """Return the Jaccard index of the sketch and another: as `similarity`."""
        cdef const uint16_t* a = <const uint16_t*>self.sketch
        cdef const uint16_t* b = <const uint16_t*>other
        cdef size_t ours = self.size // 2, theirs = size // 2, common = 0, i
        cdef uint16_t value, reach = 0xFFFF
        if not 2 <= ours <= SKETCH + 1 or theirs < 2 or a[0] >> 1 != b[0] >> 1:
            return similarity(self.sketch, self.size, other, size)
        if self.marked_count == 0:
            self.mark()
        if a[0] & 1:
            reach = a[ours - 1]
        if b[0] & 1:
            reach = min(reach, b[theirs - 1])
        ours = up_to(a + 1, ours - 1, reach)
        theirs = up_to(b + 1, theirs - 1, reach)
        for i in range(1, theirs + 1):
            value = b[i]
            common += self.bits[value >> 6] >> (value & 63) & 1
        return <double>common / <double>(ours + theirs - common)

    cdef void mark(self) noexcept:
        cdef size_t i
        self.marked_count = self.size // 2 - 1
        memcpy(self.marked, self.sketch + 2, self.marked_count * sizeof(uint16_t))
        for i in range(self.marked_count):
            self.bits[self.marked[i] >> 6] |= <uint64_t>1 << (self.marked[i] & 63)


cdef inline size_t up_to(const uint16_t* values, size_t count, uint16_t reach) noexcept nogil:
    """Return how many of the values are at most `reach`."""
    cdef size_t i
    cdef uint16_t found = 0
    for i in range(count):
        found += values[i] <= reach
    return found


# ---------------------------------------------------------------- bands


cdef struct BandEntry:
    EntryHeader header
    uint64_t linked  # bit n: whether it is on the chain of its key n
    # the next entry on the chain of the first key, of the second, …; then the keys' bytes
    uint32_t links[1]


cdef class NativeBandTables(EntryPool):
    """See `store.ReferenceBandTables`.

    One hash table for all keys, with chains of entries. A chain has few entries: at most a crowd
    has an equal key, and there are as many heads as entries have keys.

    Memory of a fingerprint of sixteen keys of four bytes: 148 bytes, and up to 128 for the heads; it doubles as it
    grows, so up to twice that.
    """

    cdef uint32_t** asked  # a query's heads
    cdef uint32_t* found  # the owners that a query has found, …
    cdef uint32_t* shared  # … and how many keys of each are equal
    cdef uint32_t* met  # the number of the last search that has met each entry
    cdef Verifier verifier
    cdef size_t size
    cdef uint32_t bands, key_bytes, crowd, searches

    def __cinit__(self, bands):
        self.bands, self.key_bytes, self.crowd = bands
        if not (0 < self.bands <= 64 and 0 < self.key_bytes <= 8 and 0 < self.crowd <= 4096):
            raise ValueError(f"there are no tables for {bands}")
        self.size = <size_t>self.bands * self.key_bytes
        self.stride = (sizeof(BandEntry) + 4 * (<size_t>self.bands - 1) + self.size + 7) // 8 * 8
        self.asked = <uint32_t**>calloc(self.bands, sizeof(uint32_t*))
        self.found = <uint32_t*>calloc(<size_t>self.bands * self.crowd, 4)
        self.shared = <uint32_t*>calloc(<size_t>self.bands * self.crowd, 4)
        self.verifier = Verifier()
        if self.asked == NULL or self.found == NULL or self.shared == NULL:
            raise MemoryError
        self.grow(FIRST_ROOM)

    def __dealloc__(self):
        free(self.asked)
        free(self.found)
        free(self.shared)
        free(self.met)

    cdef inline BandEntry* at(self, uint32_t entry) noexcept nogil:
        return <BandEntry*>(self.entries + self.stride * entry)

    cdef inline char* keys_of(self, BandEntry* entry) noexcept nogil:
        return <char*>&entry.links[self.bands]

    cdef inline uint32_t* head_of(
        self, uint32_t band, const char* keys, uint32_t group
    ) noexcept nogil:
        cdef uint64_t key = 0
        memcpy(&key, keys + band * self.key_bytes, self.key_bytes)
        return &self.heads[mix(key, band, group) & (self.heads_room - 1)]

    cdef inline bint has_key(
        self, BandEntry* entry, uint32_t band, const char* keys, uint32_t group
    ) noexcept nogil:
        """Return whether an entry of a chain has this key in this place."""
        cdef size_t at = band * self.key_bytes
        return (
            entry.header.group == group
            and memcmp(self.keys_of(entry) + at, keys + at, self.key_bytes) == 0
        )

    cdef inline uint32_t* next_of(self, uint32_t number, uint32_t band) noexcept nogil:
        return &self.at(number).links[band]

    cdef int grow(self, uint32_t room) except -1:
        cdef uint32_t number, band
        cdef uint32_t* head
        cdef BandEntry* entry
        cdef size_t heads_room = 1
        if room > 0x3FFFFFF:
            raise MemoryError("more than 67 108 863 fingerprints of bands")
        while heads_room < <size_t>room * self.bands:
            heads_room *= 2
        self.entries = <char*>resized(self.entries, self.stride * room)
        self.heads = <uint32_t*>resized(self.heads, heads_room * 4)
        self.met = <uint32_t*>resized(self.met, <size_t>room * 4)
        self.room, self.heads_room, self.searches = room, heads_room, 0
        memset(self.heads, 0xFF, heads_room * 4)
        memset(self.met, 0, <size_t>room * 4)
        with nogil:
            for number in range(self.used):
                entry = self.at(number)
                for band in range(self.bands if entry.header.owner != NONE else 0):
                    if entry.linked >> band & 1:
                        head = self.head_of(band, self.keys_of(entry), entry.header.group)
                        entry.links[band] = head[0]
                        head[0] = number * self.bands + band
        return 0

    def insert(self, fingerprint, uint32_t group, uint32_t owner):
        cdef bytes packed = fingerprint.to_bytes(self.size, "big")
        return self.put(PyBytes_AS_STRING(packed), group, owner)

    cdef int64_t put(self, const char* keys, uint32_t group, uint32_t owner) except -1:
        """Insert an entry and return its number."""
        cdef uint32_t number, node, band, members, left_out = 0
        cdef bint held
        cdef uint32_t* head
        cdef BandEntry* entry
        cdef BandEntry* other
        number = <uint32_t>self.allocate(group, owner)
        entry = self.at(number)
        entry.linked = 0
        memcpy(self.keys_of(entry), keys, self.size)
        for band in range(self.bands):
            prefetch(self.head_of(band, keys, group))
        for band in range(self.bands):
            head = self.head_of(band, keys, group)
            members = 0
            held = False
            node = head[0]
            while node != NONE and not held:
                other = self.at(node // self.bands)
                if node % self.bands == band and self.has_key(other, band, keys, group):
                    members += 1
                    held = other.header.owner == owner
                node = other.links[node % self.bands]
            if held:
                continue
            if members >= self.crowd:
                left_out += 1
            else:
                entry.links[band] = head[0]
                entry.linked |= <uint64_t>1 << band
                head[0] = number * self.bands + band
        self.crowded += 2 * left_out > self.bands
        return number

    def delete(self, uint32_t number):
        cdef uint32_t band, node, own
        cdef uint32_t* place
        cdef BandEntry* entry
        self.check(number)
        entry = self.at(number)
        for band in range(self.bands):
            if not entry.linked >> band & 1:
                continue
            own = number * self.bands + band
            place = self.head_of(band, self.keys_of(entry), entry.header.group)
            while place[0] != own:
                node = place[0]
                place = self.next_of(node // self.bands, node % self.bands)
            place[0] = entry.links[band]
        self.release(number)

    def fingerprint(self, uint32_t number):
        self.check(number)
        return int.from_bytes(self.keys_of(self.at(number))[: self.size], "big")

    cdef void ask(self, const char* keys, uint32_t group) noexcept:
        """Look up the heads of all chains of a search, which waits for none of them alone."""
        cdef uint32_t band
        cdef BandEntry* entry
        for band in range(self.bands):
            self.asked[band] = self.head_of(band, keys, group)
            prefetch(self.asked[band])
        for band in range(self.bands):
            if self.asked[band][0] != NONE:
                entry = self.at(self.asked[band][0] // self.bands)
                prefetch(entry)
                prefetch(self.keys_of(entry))
                prefetch(self.keys_of(entry) + self.size - 1)

    def similar(self, fingerprint, uint32_t group, bytes sketch not None, list sketches not None,
                double jaccard):
        cdef bytes packed = fingerprint.to_bytes(self.size, "big")
        cdef const char* keys = PyBytes_AS_STRING(packed)
        cdef list owners = [], shared = []
        cdef uint32_t band, node, members, number, owner, i, count = 0
        cdef size_t known = len(sketches)
        cdef BandEntry* entry
        cdef bytes theirs
        if self.searches == NONE:
            memset(self.met, 0, <size_t>self.room * 4)
            self.searches = 0
        self.searches += 1
        self.verifier.begin(sketch, jaccard)
        self.ask(keys, group)
        for band in range(self.bands):
            node = self.asked[band][0]
            members = 0
            while node != NONE:
                number = node // self.bands
                entry = self.at(number)
                if node % self.bands == band and self.has_key(entry, band, keys, group):
                    members += 1
                    if self.met[number] != self.searches:
                        self.met[number] = self.searches
                        owner = entry.header.owner
                        if owner >= known:
                            raise IndexError(f"there is no sketch of {owner}")
                        prefetch(&PySequence_Fast_ITEMS(sketches)[owner])
                        self.found[count] = owner
                        count += 1
                node = entry.links[node % self.bands]
            shared.append(members)
        # Each sketch is a line of memory that nobody has read lately: asked for ahead of its turn.
        for i in range(count):
            prefetch_sketch(sketches, self.found[i])
        for i in range(count):
            theirs = sketches[self.found[i]]
            if not theirs or self.verifier.admits(theirs):
                owners.append(self.found[i])
        return Similar(owners, shared)

    def query(self, fingerprint, uint32_t group, max_candidates):
        cdef bytes packed = fingerprint.to_bytes(self.size, "big")
        cdef const char* keys = PyBytes_AS_STRING(packed)
        cdef uint32_t band, node, i, count = 0, candidates = 0
        cdef BandEntry* entry
        self.ask(keys, group)
        for band in range(self.bands):
            node = self.asked[band][0]
            while node != NONE:
                entry = self.at(node // self.bands)
                if node % self.bands == band and self.has_key(entry, band, keys, group):
                    candidates += 1
                    i = 0
                    while i < count and self.found[i] != entry.header.owner:
                        i += 1
                    if i == count:
                        self.found[i] = entry.header.owner
                        self.shared[i] = 0
                        count += 1
                    self.shared[i] += 1
                node = entry.links[node % self.bands]
        return Found(
            [self.found[i] for i in range(count)],
            [self.bands - self.shared[i] for i in range(count)],
            candidates,
            False,
        )

    def nbytes(self):
        return self.room * (self.stride + 4) + self.heads_room * 4


cdef void* resized(void* memory, size_t size) except NULL:
    cdef void* moved = realloc(memory, size)
    if moved == NULL:
        raise MemoryError
    return moved


# A run of bits within one 64-bit word of the fingerprint and within one of the member.
cdef struct Piece:
    uint64_t ones
    uint8_t source, down, target, up


cdef struct Arrangement:
    uint32_t pieces  # of this table; the pieces of all tables are in one array
    uint32_t prefix_bits


cdef class NativeEntries:
    """See `entries.Entries`. Works on words of 64 bits.

    A member's bits are put together in four words: two for the prefix, two for the rest, both from
    the highest bit on. Their first bytes, the highest first, are then the member's.
    """

    cdef Piece* pieces
    cdef Arrangement* arrangements
    cdef uint32_t tables, slice_bits, prefix_room, rest_room, width_bytes
    cdef readonly int prefix_bytes, member_bytes
    cdef object reference, every

    def __cinit__(self, layout, slices):
        cdef list runs = []
        self.every = (<object>1 << (layout.width + 7) // 8 * 8) - 1
        if type(self) is not NativeEntries:
            return  # see NativeBandEntries
        self.reference = ReferenceEntries(layout, slices)
        self.prefix_bytes = self.reference.prefix_bytes
        self.member_bytes = self.reference.member_bytes
        self.prefix_room = self.prefix_bytes - GROUP_BYTES
        self.rest_room = self.member_bytes - self.prefix_bytes - OWNER_BYTES
        self.slice_bits = slices.bit_length() - 1
        self.tables = layout.tables
        self.width_bytes = (layout.width + 7) // 8
        self.arrangements = <Arrangement*>calloc(layout.tables, sizeof(Arrangement))
        if self.arrangements == NULL:
            raise MemoryError
        for table, order in enumerate(layout.orders):
            before = len(runs)
            chosen = layout.blocks - layout.k
            for first_word, blocks in ((0, order[:chosen]), (2, order[chosen:])):
                runs += runs_of([layout.bounds[block] for block in blocks], first_word)
            self.arrangements[table].pieces = len(runs) - before
            self.arrangements[table].prefix_bits = layout.prefix_bits[table]
        self.pieces = <Piece*>calloc(len(runs), sizeof(Piece))
        if self.pieces == NULL:
            raise MemoryError
        for number, (bits, source, down, target, up) in enumerate(runs):
            self.pieces[<size_t>number] = Piece((1 << bits) - 1, source, down, target, up)

    def __dealloc__(self):
        free(self.pieces)
        free(self.arrangements)

    def arrange(self, fingerprint, uint32_t group, uint64_t owner, bytes key_prefix not None):
        cdef bytes members
        cdef char whole[MOST_WIDTH_BYTES]
        cdef list keys = []
        self.put_fingerprint(whole, fingerprint & self.every)
        members = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self.tables * self.member_bytes)
        self.lay(whole, group, owner, key_prefix, keys, PyBytes_AS_STRING(members))
        return keys, members

    cdef char* put_fingerprint(self, char* to, object fingerprint) except NULL:
        """Write a fingerprint, big-endian; return where it ends."""
        cdef uint64_t low, high
        if fingerprint >> 8 * self.width_bytes:
            raise OverflowError("int too big to convert")
        low = fingerprint & 0xFFFFFFFFFFFFFFFF
        if self.width_bytes <= 8:
            return put(to, low << 8 * (8 - self.width_bytes), self.width_bytes)
        high = fingerprint >> 64
        to = put(to, high << 8 * (16 - self.width_bytes), self.width_bytes - 8)
        return put(to, low, 8)

    cdef char* lay(
        self,
        const char* fingerprint,
        uint32_t group,
        uint64_t owner,
        bytes key_prefix,
        list keys,
        char* to,
    ) except NULL:
        """Add the keys and write the members of what `put_fingerprint` wrote; return their end."""
        cdef uint64_t words[2]
        cdef uint64_t member[4]
        cdef uint64_t spread = <uint16_t>group * <uint64_t>0x9E3779B97F4A7C15
        cdef uint32_t table, number
        cdef const Piece* piece = self.pieces
        words[0] = taken(fingerprint + max(self.width_bytes, 8) - 8, min(self.width_bytes, 8))
        words[1] = taken(fingerprint, self.width_bytes - 8) if self.width_bytes > 8 else 0
        for table in range(self.tables):
            memset(member, 0, sizeof(member))
            for number in range(self.arrangements[table].pieces):
                member[piece.target] |= (words[piece.source] >> piece.down & piece.ones) << piece.up
                piece += 1
            to = put(to, <uint64_t>group << 48, 2)
            to = put(to, member[0], min(self.prefix_room, 8))
            if self.prefix_room > 8:
                to = put(to, member[1], self.prefix_room - 8)
            to = put(to, member[2], min(self.rest_room, 8))
            if self.rest_room > 8:
                to = put(to, member[3], self.rest_room - 8)
            to = put(to, owner, 8)
            number = slice_of(
                folded(member[0], member[1], self.arrangements[table].prefix_bits),
                min(self.arrangements[table].prefix_bits, 64),
                spread,
                self.slice_bits,
            )
            keys.append(slice_key(key_prefix, table, number))
        return to

    def pack(self, rows, prefixes):
        cdef bytes owner_prefix = prefixes.owner, exact_prefix = prefixes.exact
        cdef bytes table_prefix = prefixes.table, packed, hashes, one, other, third
        cdef uint64_t owner, exact
        cdef uint32_t group, exact_slice
        cdef double first, last
        cdef bint searchable
        cdef Py_ssize_t count = len(rows), members = <Py_ssize_t>self.tables * self.member_bytes
        cdef Py_ssize_t size = 4
        cdef char* to
        cdef const char* whole
        cdef tuple row
        cdef list keys = [], slices = []
        for row in rows:
            _, _, _, _, _, _, _, searchable, hashes, one, other, third = row
            size += FIXED_BYTES + self.width_bytes + (members if searchable else 0)
            size += self.packed_size(hashes) + len(one) + len(other) + len(third)
        packed = PyBytes_FromStringAndSize(NULL, size)
        to = put(PyBytes_AS_STRING(packed), <uint64_t>count << 32, 4)
        for row in rows:
            (
                first, last, owner, group, exact, exact_slice, fingerprint, searchable, hashes, one,
                other, third,
            ) = row
            keys.append(owner_key(owner_prefix, owner))
            slices.append(numbered(exact_prefix, exact_slice))
            to = put_double(put_double(to, first), last)
            to = put(put(put(to, owner, 8), <uint64_t>group << 32, 4), exact, 8)

            to = put_length(to, self.width_bytes)
            whole = to
            to = self.put_fingerprint(to, fingerprint)

            to = put_length(to, self.packed_size(hashes))
            to = self.put_hashes(to, hashes)
            to = put_part(put_part(to, one), other)
            to = put_length(to, members if searchable else 0)
            if searchable:
                to = self.lay(whole, group, owner, table_prefix, slices, to)
            to = put_part(to, third)
        keys += slices
        return keys, packed

    cdef Py_ssize_t packed_size(self, bytes hashes) except -1:
        if PyBytes_GET_SIZE(hashes) % 8:
            raise ValueError("hashes have 8 bytes each")
        return PyBytes_GET_SIZE(hashes)

    cdef char* put_hashes(self, char* to, bytes hashes) noexcept:
        return put_swapped(to, PyBytes_AS_STRING(hashes), PyBytes_GET_SIZE(hashes) // 8)

    def slice_key(self, member, table, key_prefix):
        return self.reference.slice_key(member, table, key_prefix)

    def fingerprint(self, member, table):
        return self.reference.fingerprint(member, table)


cdef class NativeBandEntries(NativeEntries):
    """See `entries.ReferenceBandEntries`."""

    def __cinit__(self, layout, slices):
        self.reference = ReferenceBandEntries(layout, slices)
        self.prefix_bytes = self.reference.prefix_bytes
        self.member_bytes = self.reference.member_bytes
        self.slice_bits = slices.bit_length() - 1
        self.tables = layout.tables
        self.width_bytes = layout.width // 8

    cdef Py_ssize_t packed_size(self, bytes hashes) except -1:
        return packed_sketch_size(hashes)

    cdef char* put_hashes(self, char* to, bytes hashes) noexcept:
        return put_sketch(to, hashes)

    cdef char* put_fingerprint(self, char* to, object fingerprint) except NULL:
        cdef bytes whole = fingerprint.to_bytes(self.width_bytes, "big")
        memcpy(to, PyBytes_AS_STRING(whole), self.width_bytes)
        return to + self.width_bytes

    cdef char* lay(
        self,
        const char* fingerprint,
        uint32_t group,
        uint64_t owner,
        bytes key_prefix,
        list keys,
        char* to,
    ) except NULL:
        cdef uint64_t spread = <uint16_t>group * <uint64_t>0x9E3779B97F4A7C15
        cdef uint64_t key
        cdef uint32_t table, number, size = self.width_bytes // self.tables
        for table in range(self.tables):
            key = taken(fingerprint + table * size, size)
            to = put(to, mixed(key, 8 * size, spread) << 64 - 8 * MARK_BYTES, MARK_BYTES)
            to = put(to, owner, 8)
            number = slice_of(key, 8 * size, spread, self.slice_bits)
            keys.append(slice_key(key_prefix, table, number))
        return to


def runs_of(bounds, first_word):
    """Return (bits, source, down, target, up) of each piece of these blocks, from the top."""
    runs = []
    laid = 0
    for shift, bits in bounds:
        while bits:
            top = shift + bits  # one above the piece's highest bit
            step = min(bits, (top - 1) % 64 + 1, 64 - laid % 64)
            source, down = divmod(top - step, 64)
            runs.append((step, source, down, first_word + laid // 64, 64 - laid % 64 - step))
            laid += step
            bits -= step
    return runs


cdef inline char* put(char* to, uint64_t word, uint32_t count) noexcept nogil:
    """Write a word's first bytes, big-endian; return where they end."""
    cdef uint32_t at
    for at in range(count):
        to[at] = <char>(word >> (56 - 8 * at))
    return to + count


cdef inline char* put_double(char* to, double number) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, &number, 8)
    return put(to, word, 8)


cdef inline char* put_length(char* to, Py_ssize_t length) noexcept nogil:
    return put(to, <uint64_t>length << 32, 4)


cdef inline char* put_part(char* to, bytes part) noexcept:
    cdef Py_ssize_t length = PyBytes_GET_SIZE(part)
    to = put_length(to, length)
    memcpy(to, PyBytes_AS_STRING(part), length)
    return to + length


cdef inline char* put_swapped(char* to, const char* hashes, Py_ssize_t count) noexcept nogil:
    """Write hashes, given in the machine's byte order, big-endian."""
    cdef uint64_t word
    cdef Py_ssize_t at
    for at in range(count):
        memcpy(&word, hashes + 8 * at, 8)
        to = put(to, word, 8)
    return to


cdef bytes owner_key(bytes prefix, uint64_t owner):
    """Return the prefix and the owner in sixteen hexadecimal digits."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, size + 16)
    cdef char* to = PyBytes_AS_STRING(key)
    cdef int at
    memcpy(to, PyBytes_AS_STRING(prefix), size)
    for at in range(16):
        to[size + at] = b"0123456789abcdef"[owner >> (60 - 4 * at) & 15]
    return key


cdef bytes numbered(bytes prefix, uint32_t number):
    """Return the prefix and the number's digits."""
    cdef char digits[12]
    cdef char* begin = put_decimal(digits + sizeof(digits), number)
    return joined(prefix, begin, digits + sizeof(digits) - begin)


cdef bytes slice_key(bytes prefix, uint32_t table, uint32_t number):
    """Return the prefix, the table, a colon and the slice."""
    cdef char ending[24]
    cdef char* begin = put_decimal(ending + sizeof(ending), number)
    begin -= 1
    begin[0] = b":"
    begin = put_decimal(begin, table)
    return joined(prefix, begin, ending + sizeof(ending) - begin)


cdef inline bytes joined(bytes prefix, const char* ending, Py_ssize_t length):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, size + length)
    memcpy(PyBytes_AS_STRING(key), PyBytes_AS_STRING(prefix), size)
    memcpy(PyBytes_AS_STRING(key) + size, ending, length)
    return key


cdef inline char* put_decimal(char* end, uint32_t number) noexcept nogil:
    """Write the number's digits before `end`; return where they begin."""
    while True:
        end -= 1
        end[0] = <char>(48 + number % 10)
        number //= 10
        if number == 0:
            return end


cdef inline uint64_t folded(uint64_t high, uint64_t low, uint32_t bits) noexcept nogil:
    """Return the exclusive or of the halves of the number in the first `bits` of the words."""
    cdef uint32_t down = 128 - bits
    if down == 0:
        return high ^ low
    if down < 64:
        return (high >> down) ^ (high << (64 - down) | low >> down)
    return high >> (down - 64)


cdef inline uint64_t mixed(uint64_t x, uint32_t bits, uint64_t spread) noexcept nogil:
    """See `entries.mixed`; `spread` is made of the group."""
    cdef uint64_t ones = (<uint64_t>2 << (bits - 1)) - 1
    x = ((x ^ spread >> (64 - bits)) * <uint64_t>0xFF51AFD7ED558CCD) & ones
    x ^= x >> (bits + 1) // 2
    return (x * <uint64_t>0xC4CEB9FE1A85EC53) & ones


cdef inline uint32_t slice_of(
    uint64_t x, uint32_t bits, uint64_t spread, uint32_t slice_bits
) noexcept nogil:
    """See `entries.slice_of`; `x` has `bits` bits, 1 to 64."""
    if slice_bits == 0:
        return 0
    x = mixed(x, bits, spread)
    if bits >= slice_bits:
        return <uint32_t>(x >> (bits - slice_bits))
    spread *= <uint64_t>0xC4CEB9FE1A85EC53
    return <uint32_t>(x << (slice_bits - bits) | spread >> (64 - (slice_bits - bits)))
