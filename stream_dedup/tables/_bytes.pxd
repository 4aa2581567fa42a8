# cython: language_level=3
"""Numbers in bytes, for the native extensions."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef inline uint64_t taken(const char* bytes_, uint32_t count) noexcept nogil:
    """Return the number in so many bytes, big-endian."""
    cdef uint64_t word = 0
    cdef uint32_t at
    for at in range(count):
        word = word << 8 | <uint8_t>bytes_[at]
    return word
