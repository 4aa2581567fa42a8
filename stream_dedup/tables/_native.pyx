# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""The tables in native memory; `store.ReferenceTables` says the same in Python.

Each table is a hash table of chains. An entry's bucket in a table is the hash of its group and of
the bits of the table's prefix; entries of one bucket are linked in both directions, so that an
insert or a delete is a few words a table, however long the chain. A query walks one chain a table
and compares every entry on it, newest first; an entry whose earlier table has shown it already is
passed over by looking at the bits, so nothing need be remembered.

Memory of a stored fingerprint at T tables: 8 bytes (16 at 128 bits) + 8 for group and owner +
8 T for the links + 4 T at most for the buckets' heads; arrays double as they grow, so up to twice
that. At W = 64, T = 4: 64 to 128 bytes.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from stream_dedup.tables.store import Found

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
    """
    int popcount64(uint64_t) noexcept nogil

cdef enum:
    NONE = 0xFFFFFFFF
    FIRST_ROOM = 256

# Drawn once a process: whoever writes the text cannot choose which fingerprints share a bucket.
cdef uint64_t _PROCESS_SALT = int.from_bytes(os.urandom(8), "little")


cdef inline uint64_t mix(uint64_t low, uint64_t high, uint32_t group) noexcept nogil:
    cdef uint64_t x = low ^ _PROCESS_SALT ^ (high * <uint64_t>0x9E3779B97F4A7C15)
    x ^= (<uint64_t>group + 1) * <uint64_t>0xD6E8FEB86659FD93
    x = (x ^ (x >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    x = (x ^ (x >> 29)) * <uint64_t>0xBF58476D1CE4E5B9
    return x ^ (x >> 32)


cdef class NativeTables:
    """Tables as chains in native memory; see `store.Tables` for the methods."""

    cdef uint64_t* mask_low
    cdef uint64_t* mask_high
    cdef uint64_t* low
    cdef uint64_t* high
    cdef uint32_t* group
    cdef uint32_t* owner
    cdef uint32_t* link_next
    cdef uint32_t* link_before
    cdef uint32_t* heads
    cdef uint32_t tables, k, room, used, free_entry, count, heads_room, heads_most
    cdef bint wide

    def __init__(self, layout):
        cdef uint32_t table
        if self.tables:
            raise RuntimeError("made already")
        self.k = layout.k
        self.wide = layout.width > 64
        self.free_entry = NONE
        self.mask_low = <uint64_t*>calloc(layout.tables, 8)
        self.mask_high = <uint64_t*>calloc(layout.tables, 8)
        if self.mask_low == NULL or self.mask_high == NULL:
            raise MemoryError
        self.tables = layout.tables
        for table in range(self.tables):
            self.mask_low[table] = layout.masks[table] & 0xFFFFFFFFFFFFFFFF
            self.mask_high[table] = layout.masks[table] >> 64
        # More heads than prefixes would stay empty, but groups multiply them.
        self.heads_most = 1 << min(26, max(layout.prefix_bits) + 4)
        self.grow(FIRST_ROOM)

    def __dealloc__(self):
        free(self.mask_low)
        free(self.mask_high)
        free(self.low)
        free(self.high)
        free(self.group)
        free(self.owner)
        free(self.link_next)
        free(self.link_before)
        free(self.heads)

    def __len__(self):
        return self.count

    cdef inline uint32_t* head_of(self, uint32_t table, uint32_t entry) noexcept nogil:
        cdef uint64_t high = self.high[entry] & self.mask_high[table] if self.wide else 0
        cdef uint64_t hashed = mix(self.low[entry] & self.mask_low[table], high, self.group[entry])
        return &self.heads[<size_t>table * self.heads_room + (hashed & (self.heads_room - 1))]

    cdef int grow(self, uint32_t room) except -1:
        cdef size_t links = <size_t>room * self.tables
        if room > 0x7FFFFFFF:
            raise MemoryError("more than 2 147 483 647 fingerprints")
        self.low = <uint64_t*>resized(self.low, <size_t>room * 8)
        if self.wide:
            self.high = <uint64_t*>resized(self.high, <size_t>room * 8)
        self.group = <uint32_t*>resized(self.group, <size_t>room * 4)
        self.owner = <uint32_t*>resized(self.owner, <size_t>room * 4)
        self.link_next = <uint32_t*>resized(self.link_next, links * 4)
        self.link_before = <uint32_t*>resized(self.link_before, links * 4)
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
                if self.owner[entry] != NONE:
                    for table in range(self.tables):
                        self.link(table, entry)
        return 0

    cdef inline void link(self, uint32_t table, uint32_t entry) noexcept nogil:
        cdef uint32_t* head = self.head_of(table, entry)
        cdef size_t place = <size_t>entry * self.tables + table
        self.link_next[place] = head[0]
        self.link_before[place] = NONE
        if head[0] != NONE:
            self.link_before[<size_t>head[0] * self.tables + table] = entry
        head[0] = entry

    def insert(self, fingerprint, uint32_t group, uint32_t owner):
        """Store a fingerprint in every table; returns the entry's number, for `delete`."""
        cdef uint32_t entry, table
        cdef uint64_t low = fingerprint & 0xFFFFFFFFFFFFFFFF
        cdef uint64_t high = fingerprint >> 64
        if owner == NONE:
            raise ValueError("owners are below 4 294 967 295")
        if self.free_entry != NONE:
            entry = self.free_entry
            self.free_entry = self.group[entry]
        else:
            if self.used == self.room:
                self.grow(2 * self.room)
            entry = self.used
            self.used += 1
        self.low[entry] = low
        if self.wide:
            self.high[entry] = high
        self.group[entry] = group
        self.owner[entry] = owner
        for table in range(self.tables):
            self.link(table, entry)
        self.count += 1
        return entry

    def delete(self, uint32_t entry):
        """Take an entry out of every table."""
        cdef uint32_t table, after, before
        cdef size_t place
        if entry >= self.used or self.owner[entry] == NONE:
            raise KeyError(entry)
        for table in range(self.tables):
            place = <size_t>entry * self.tables + table
            after = self.link_next[place]
            before = self.link_before[place]
            if after != NONE:
                self.link_before[<size_t>after * self.tables + table] = before
            if before != NONE:
                self.link_next[<size_t>before * self.tables + table] = after
            else:
                self.head_of(table, entry)[0] = after
        # A free entry's group holds the next free one.
        self.owner[entry] = NONE
        self.group[entry] = self.free_entry
        self.free_entry = entry
        self.count -= 1

    def query(self, fingerprint, uint32_t group, uint64_t max_candidates):
        """All entries of `group` within k bits, unless there are too many candidates."""
        cdef uint64_t low = fingerprint & 0xFFFFFFFFFFFFFFFF
        cdef uint64_t high = fingerprint >> 64
        cdef uint64_t apart_low, apart_high = 0, hashed, candidates = 0
        cdef uint32_t table, earlier, entry
        cdef uint32_t distance
        cdef bint truncated = False, seen
        cdef list owners = [], distances = []
        for table in range(self.tables):
            hashed = mix(low & self.mask_low[table], high & self.mask_high[table], group)
            entry = self.heads[
                <size_t>table * self.heads_room + (hashed & (self.heads_room - 1))
            ]
            while entry != NONE:
                apart_low = self.low[entry] ^ low
                if self.wide:
                    apart_high = self.high[entry] ^ high
                # Other prefixes and groups may hash to the same bucket: they are no candidates.
                if (
                    apart_low & self.mask_low[table] == 0
                    and apart_high & self.mask_high[table] == 0
                    and self.group[entry] == group
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
                            owners.append(self.owner[entry])
                            distances.append(distance)
                entry = self.link_next[<size_t>entry * self.tables + table]
        return Found(owners, distances, candidates, truncated)

    def nbytes(self):
        """Memory held, in bytes."""
        cdef size_t entry = 16 + 8 * self.wide + 8 * self.tables
        return self.room * entry + <size_t>self.heads_room * self.tables * 4


cdef void* resized(void* memory, size_t size) except NULL:
    cdef void* moved = realloc(memory, size)
    if moved == NULL:
        raise MemoryError
    return moved
