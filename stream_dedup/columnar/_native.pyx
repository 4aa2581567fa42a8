# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""The functions of `reference`, natively.

`dictionary_encode` compares objects by address, in a hash table with linear probing that lives for
one call. It has a power of two of slots, at least twice as many as rows; each holds one more than
the code of its object, or 0. Addresses are hashed by Fibonacci's multiplier. `encode_numbers` does so
with numbers: whoever knows the multiplier can choose some that share a slot, so give it keyed hashes.
"""

from cpython cimport array
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from array import array as new_array

from stream_dedup.columnar import reference

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    object PySequence_Fast(object, const char*)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject* PySequence_Fast_GET_ITEM(object, Py_ssize_t)  # borrowed
    PyObject* Py_None
    PyObject* Py_True
    void Py_INCREF(PyObject*)
    void PyList_SET_ITEM(object, Py_ssize_t, PyObject*)  # steals

cdef enum:
    NARROW = 1 << 16

cdef array.array _NARROW = new_array("H")
cdef array.array _WIDE = new_array("I")

cdef struct Numbers:
    int64_t rows
    int64_t least
    int64_t most


def dictionary_encode(column):
    """See `reference.dictionary_encode`."""
    cdef object objects = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row, rows = PySequence_Fast_GET_SIZE(objects)
    cdef list values = []
    cdef uint32_t* slots
    cdef uint32_t* code_of
    cdef PyObject* each
    cdef PyObject* before = NULL
    cdef uint64_t slot, last_slot
    cdef uint32_t code = 0
    cdef int bits = 1
    while <Py_ssize_t>1 << bits < 2 * rows:
        bits += 1
    last_slot = (<uint64_t>1 << bits) - 1
    slots = <uint32_t*>calloc(<size_t>1 << bits, sizeof(uint32_t))
    code_of = <uint32_t*>malloc((rows + 1) * sizeof(uint32_t))
    try:
        if slots == NULL or code_of == NULL:
            raise MemoryError
        for row in range(rows):
            each = PySequence_Fast_GET_ITEM(objects, row)
            if each != before:
                before = each
                slot = (<uint64_t><uintptr_t>each * <uint64_t>0x9E3779B97F4A7C15) >> (64 - bits)
                while True:
                    code = slots[slot]
                    if code == 0:
                        values.append(<object>each)
                        code = slots[slot] = <uint32_t>PyList_GET_SIZE(values)
                        break
                    if <PyObject*>PyList_GET_ITEM(values, code - 1) == each:
                        break
                    slot = (slot + 1) & last_slot
            code_of[row] = code - 1
        return values, packed_codes(code_of, rows, PyList_GET_SIZE(values))
    finally:
        free(slots)
        free(code_of)


def encode_numbers(array.array numbers not None):
    """See `reference.encode_numbers`."""
    cdef Py_ssize_t row, rows = len(numbers)
    cdef const uint64_t* column
    cdef uint64_t* distinct
    cdef uint32_t* slots
    cdef uint32_t* code_of
    cdef uint64_t slot, last_slot
    cdef uint32_t code, count = 0
    cdef int bits = 1
    if numbers.typecode != "Q":
        raise TypeError(f"numbers are an array of type Q, not {numbers.typecode}")
    column = numbers.data.as_ulonglongs
    while <Py_ssize_t>1 << bits < 2 * rows:
        bits += 1
    last_slot = (<uint64_t>1 << bits) - 1
    slots = <uint32_t*>calloc(<size_t>1 << bits, sizeof(uint32_t))
    code_of = <uint32_t*>malloc((rows + 1) * sizeof(uint32_t))
    distinct = <uint64_t*>malloc((rows + 1) * sizeof(uint64_t))
    try:
        if slots == NULL or code_of == NULL or distinct == NULL:
            raise MemoryError
        for row in range(rows):
            slot = (column[row] * <uint64_t>0x9E3779B97F4A7C15) >> (64 - bits)
            while True:
                code = slots[slot]
                if code == 0:
                    distinct[count] = column[row]
                    count += 1
                    code = slots[slot] = count
                    break
                if distinct[code - 1] == column[row]:
                    break
                slot = (slot + 1) & last_slot
            code_of[row] = code - 1
        return [distinct[row] for row in range(count)], packed_codes(code_of, rows, count)
    finally:
        free(slots)
        free(code_of)
        free(distinct)


def rows_of(array.array codes not None, list wanted not None):
    """See `reference.rows_of`."""
    cdef Py_ssize_t row, rows = len(codes), count = PyList_GET_SIZE(wanted)
    cdef list found = []
    cdef bint narrow = are_narrow(codes)
    for row in range(rows):
        if <PyObject*>PyList_GET_ITEM(wanted, code_at(codes, row, count, narrow)) == Py_True:
            found.append(row)
    return found


def group_min_max(array.array codes not None, numbers, Py_ssize_t count):
    """See `reference.group_min_max`."""
    cdef object column = PySequence_Fast(numbers, "numbers are a sequence")
    cdef Py_ssize_t row, rows = len(codes)
    cdef Numbers* found
    cdef Numbers* own
    cdef int64_t number
    cdef int beyond = 0
    cdef bint narrow = are_narrow(codes)
    if PySequence_Fast_GET_SIZE(column) != rows:
        raise ValueError(f"{PySequence_Fast_GET_SIZE(column)} numbers for {rows} rows")
    found = <Numbers*>calloc(count + 1, sizeof(Numbers))
    if found == NULL:
        raise MemoryError
    try:
        for row in range(rows):
            number = PyLong_AsLongLongAndOverflow(
                <object>PySequence_Fast_GET_ITEM(column, row), &beyond
            )
            if beyond:  # no machine word holds it: rare, so it may take longer
                return reference.group_min_max(codes, numbers, count)
            own = found + code_at(codes, row, count, narrow)
            if own.rows == 0:
                own.least = own.most = number
            elif number < own.least:
                own.least = number
            elif number > own.most:
                own.most = number
            own.rows += 1
        return [(found[row].rows, found[row].least, found[row].most) for row in range(count)]
    finally:
        free(found)


def group_sizes(array.array codes not None, column, Py_ssize_t count):
    """See `reference.group_sizes`."""
    cdef object values = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row, rows = len(codes)
    cdef int64_t* sizes
    cdef object value
    cdef bint narrow = are_narrow(codes)
    if PySequence_Fast_GET_SIZE(values) != rows:
        raise ValueError(f"{PySequence_Fast_GET_SIZE(values)} values for {rows} rows")
    sizes = <int64_t*>calloc(count + 1, sizeof(int64_t))
    if sizes == NULL:
        raise MemoryError
    try:
        for row in range(rows):
            value = <object>PySequence_Fast_GET_ITEM(values, row)
            if value is not None:
                sizes[code_at(codes, row, count, narrow)] += len(<bytes?>value)
        return [sizes[row] for row in range(count)]
    finally:
        free(sizes)


def take(list values not None, array.array codes not None):
    """See `reference.take`."""
    cdef Py_ssize_t row, rows = len(codes), count = PyList_GET_SIZE(values)
    cdef list column
    cdef PyObject* value
    cdef bint narrow = are_narrow(codes)
    for row in range(rows):
        code_at(codes, row, count, narrow)  # checked before the list exists, which must not stay incomplete
    column = PyList_New(rows)
    for row in range(rows):
        value = <PyObject*>PyList_GET_ITEM(values, code_at(codes, row, count, narrow))
        Py_INCREF(value)
        PyList_SET_ITEM(column, row, value)
    return column


def column_stats(column):
    """See `reference.column_stats`."""
    cdef object values = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row, size, longest = 0, total = 0
    cdef PyObject* value
    cdef bint nothing = False, empty = False
    cdef bint[256] seen
    cdef int first
    cdef set begins
    memset(seen, 0, sizeof(seen))
    for row in range(PySequence_Fast_GET_SIZE(values)):
        value = PySequence_Fast_GET_ITEM(values, row)
        if value == Py_None:
            nothing = True
            continue
        if not PyBytes_Check(<object>value):
            raise TypeError(f"row {row} is {type(<object>value).__name__}, not bytes")
        size = PyBytes_GET_SIZE(<object>value)
        if size == 0:
            empty = True
        else:
            seen[<unsigned char>PyBytes_AS_STRING(<object>value)[0]] = True
        if size > longest:
            longest = size
        total += size
    begins = {bytes((first,)) for first in range(256) if seen[first]}
    if empty:
        begins.add(b"")
    if nothing:
        begins.add(None)
    return reference.ColumnStats(begins, longest, total)


def rows_beginning(column, bytes begins not None):
    """See `reference.rows_beginning`."""
    cdef object values = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row
    cdef PyObject* value
    cdef bint[256] wanted
    cdef list rows = []
    memset(wanted, 0, sizeof(wanted))
    for first in begins:
        wanted[<unsigned char>first] = True
    for row in range(PySequence_Fast_GET_SIZE(values)):
        value = PySequence_Fast_GET_ITEM(values, row)
        if not PyBytes_Check(<object>value):
            raise TypeError(f"row {row} is {type(<object>value).__name__}, not bytes")
        if (PyBytes_GET_SIZE(<object>value)
                and wanted[<unsigned char>PyBytes_AS_STRING(<object>value)[0]]):
            rows.append(row)
    return rows


def split_quoted(column, bytes opens not None, bytes closes not None, Py_ssize_t most):
    """See `reference.split_quoted`."""
    cdef object values = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row, size, end, begin = len(opens), behind = len(closes)
    cdef PyObject* value
    cdef const char* data
    cdef const char* found
    cdef const char* mark = PyBytes_AS_STRING(closes)
    cdef const char* first = PyBytes_AS_STRING(opens)
    cdef list rows = [], quoted = [], rest = []
    if not begin or not behind:
        raise ValueError("quotes are empty")
    for row in range(PySequence_Fast_GET_SIZE(values)):
        value = PySequence_Fast_GET_ITEM(values, row)
        if not PyBytes_Check(<object>value):
            raise TypeError(f"row {row} is {type(<object>value).__name__}, not bytes")
        size = PyBytes_GET_SIZE(<object>value)
        data = PyBytes_AS_STRING(<object>value)
        if size < begin or data[0] != first[0] or memcmp(data, first, begin) != 0:
            continue
        end = begin  # where the mark may be
        while end + behind <= min(size, most):
            found = <const char*>memchr(data + end, mark[0], min(size, most) - behind - end + 1)
            if found == NULL:
                break
            end = found - data
            if memcmp(found, mark, behind) == 0:
                if end > begin:
                    rows.append(row)
                    quoted.append(PyBytes_FromStringAndSize(data + begin, end - begin))
                    rest.append(PyBytes_FromStringAndSize(found + behind, size - end - behind))
                break
            end += 1
    return rows, quoted, rest


def rows_containing(column, bytes byte not None):
    """See `reference.rows_containing`."""
    cdef object values = PySequence_Fast(column, "a column is a sequence")
    cdef Py_ssize_t row
    cdef PyObject* value
    cdef list rows = []
    cdef int wanted
    if len(byte) != 1:
        raise ValueError("one byte is looked for")
    wanted = byte[0]
    for row in range(PySequence_Fast_GET_SIZE(values)):
        value = PySequence_Fast_GET_ITEM(values, row)
        if not PyBytes_Check(<object>value):
            raise TypeError(f"row {row} is {type(<object>value).__name__}, not bytes")
        if memchr(PyBytes_AS_STRING(<object>value), wanted, PyBytes_GET_SIZE(<object>value)):
            rows.append(row)
    return rows


def replace_words(column, words, separators, by):
    """See `reference.replace_words`."""
    cdef uint8_t separates[256]
    cdef uint64_t lengths[256]  # by first letter, of either case: bit n for words of n bytes
    cdef const uint8_t* bytes_of
    cdef Py_ssize_t at, start, end, size, copied
    cdef bytearray out
    cdef list replaced = []
    memset(separates, 0, sizeof(separates))
    memset(lengths, 0, sizeof(lengths))
    for separator in separators:
        separates[<uint8_t>separator] = 1
    for word in words:
        if not 0 < len(word) < 64:
            raise ValueError("a word has 1 to 63 bytes")
        for first in (word[0], word[:1].upper()[0]):
            lengths[<uint8_t>first] |= <uint64_t>1 << len(word)
    for text in column:
        if not PyBytes_Check(text):
            raise TypeError("a column of bytes is wanted")
        bytes_of = <const uint8_t*>PyBytes_AS_STRING(text)
        size = PyBytes_GET_SIZE(text)
        out = None
        at = copied = 0
        while at < size:
            if separates[bytes_of[at]]:
                at += 1
                continue
            start = at
            while at < size and not separates[bytes_of[at]]:
                at += 1
            end = at
            while end > start and (bytes_of[end - 1] == c"." or bytes_of[end - 1] == c"!"):
                end -= 1
            if end - start > 63 or not lengths[bytes_of[start]] >> (end - start) & 1:
                continue
            if text[start:end].lower() in words:
                if out is None:
                    out = bytearray()
                out += text[copied:start]
                out += by
                copied = at
        if out is None:
            replaced.append(text)
        else:
            out += text[copied:]
            replaced.append(bytes(out))
    return replaced


def rows_by_chance(numbers, seed, below):
    """See `reference.rows_by_chance`."""
    cdef object objects = PySequence_Fast(numbers, "numbers are a sequence")
    cdef Py_ssize_t row
    cdef uint64_t mixed, start = <uint64_t>((seed + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    cdef uint64_t most
    cdef list found = []
    if below <= 0:
        return found
    most = <uint64_t>min(below - 1, 0xFFFFFFFFFFFFFFFF)
    for row in range(PySequence_Fast_GET_SIZE(objects)):
        mixed = start + <uint64_t><int64_t>(<object>PySequence_Fast_GET_ITEM(objects, row))
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu
        mixed ^= mixed >> 31
        if mixed <= most:
            found.append((row, mixed))
    return found


def multiplied(numbers, factor):
    """See `reference.multiplied`."""
    cdef object column = PySequence_Fast(numbers, "numbers are a sequence")
    cdef Py_ssize_t row
    cdef PyObject* number
    cdef PyObject* before = NULL  # many rows have the number of the one before
    cdef object product = None
    cdef list products = []
    for row in range(PySequence_Fast_GET_SIZE(column)):
        number = PySequence_Fast_GET_ITEM(column, row)
        if number != before:
            before, product = number, <object>number * factor
        products.append(product)
    return products


cdef array.array packed_codes(const uint32_t* code_of, Py_ssize_t rows, Py_ssize_t count):
    """Return codes below `count` as an array."""
    cdef array.array codes
    cdef Py_ssize_t row
    if count > NARROW:
        codes = array.clone(_WIDE, rows, False)
        memcpy(codes.data.as_voidptr, code_of, rows * sizeof(uint32_t))
        return codes
    codes = array.clone(_NARROW, rows, False)
    for row in range(rows):
        codes.data.as_ushorts[row] = <uint16_t>code_of[row]
    return codes


cdef int are_narrow(array.array codes) except -1:
    """Return whether codes have two bytes each, and not four."""
    if codes.typecode not in ("H", "I"):
        raise TypeError(f"codes are an array of type H or I, not {codes.typecode}")
    return codes.ob_descr.itemsize == 2


cdef inline Py_ssize_t code_at(
    array.array codes, Py_ssize_t row, Py_ssize_t count, bint narrow
) except -1:
    """Return the code of a row; it is below `count`."""
    cdef Py_ssize_t code = codes.data.as_ushorts[row] if narrow else codes.data.as_uints[row]
    if code >= count:
        raise IndexError(f"code {code} of {count}")
    return code
