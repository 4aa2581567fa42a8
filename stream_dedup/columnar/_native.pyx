# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""Columns natively; `reference` says the same in Python.

Objects are told apart by their addresses, in a table of linear probing that lives for one call: a
power of two of at least twice as many slots as rows, each with one more than the place of the
object that came there, or 0. An address is take over the slots by Fibonacci's multiplier.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

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
    cdef array.array places
    cdef uint32_t* slots
    cdef uint32_t* place_of
    cdef PyObject* each
    cdef PyObject* before = NULL
    cdef uint64_t slot, last_slot
    cdef uint32_t place = 0
    cdef int bits = 1
    while <Py_ssize_t>1 << bits < 2 * rows:
        bits += 1
    last_slot = (<uint64_t>1 << bits) - 1
    slots = <uint32_t*>calloc(<size_t>1 << bits, sizeof(uint32_t))
    place_of = <uint32_t*>malloc((rows + 1) * sizeof(uint32_t))
    try:
        if slots == NULL or place_of == NULL:
            raise MemoryError
        for row in range(rows):
            each = PySequence_Fast_GET_ITEM(objects, row)
            if each != before:
                before = each
                slot = (<uint64_t><uintptr_t>each * <uint64_t>0x9E3779B97F4A7C15) >> (64 - bits)
                while True:
                    place = slots[slot]
                    if place == 0:
                        values.append(<object>each)
                        place = slots[slot] = <uint32_t>PyList_GET_SIZE(values)
                        break
                    if <PyObject*>PyList_GET_ITEM(values, place - 1) == each:
                        break
                    slot = (slot + 1) & last_slot
            place_of[row] = place - 1
        if PyList_GET_SIZE(values) <= NARROW:
            places = array.clone(_NARROW, rows, False)
            for row in range(rows):
                places.data.as_ushorts[row] = <uint16_t>place_of[row]
        else:
            places = array.clone(_WIDE, rows, False)
            memcpy(places.data.as_voidptr, place_of, rows * sizeof(uint32_t))
        return values, places
    finally:
        free(slots)
        free(place_of)


def rows_of(array.array places not None, list wanted not None):
    """See `reference.rows_of`."""
    cdef Py_ssize_t row, rows = len(places), count = PyList_GET_SIZE(wanted)
    cdef list found = []
    cdef bint narrow = are_narrow(places)
    for row in range(rows):
        if <PyObject*>PyList_GET_ITEM(wanted, place_at(places, row, count, narrow)) == Py_True:
            found.append(row)
    return found


def group_min_max(array.array places not None, numbers, Py_ssize_t count):
    """See `reference.group_min_max`."""
    cdef object column = PySequence_Fast(numbers, "numbers are a sequence")
    cdef Py_ssize_t row, rows = len(places)
    cdef Numbers* found
    cdef Numbers* own
    cdef int64_t number
    cdef int beyond = 0
    cdef bint narrow = are_narrow(places)
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
            if beyond:  # no machine's word holds it: once in a lifetime, so it may take longer
                return reference.group_min_max(places, numbers, count)
            own = found + place_at(places, row, count, narrow)
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


def take(list values not None, array.array places not None):
    """See `reference.take`."""
    cdef Py_ssize_t row, rows = len(places), count = PyList_GET_SIZE(values)
    cdef list column
    cdef PyObject* value
    cdef bint narrow = are_narrow(places)
    for row in range(rows):
        place_at(places, row, count, narrow)  # before there is a list that is not whole
    column = PyList_New(rows)
    for row in range(rows):
        value = <PyObject*>PyList_GET_ITEM(values, place_at(places, row, count, narrow))
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


cdef int are_narrow(array.array places) except -1:
    """Whether places have two bytes each, and not four."""
    if places.typecode not in ("H", "I"):
        raise TypeError(f"places are an array of type H or I, not {places.typecode}")
    return places.ob_descr.itemsize == 2


cdef inline Py_ssize_t place_at(
    array.array places, Py_ssize_t row, Py_ssize_t count, bint narrow
) except -1:
    """The place of a row, one of `count`."""
    cdef Py_ssize_t place = places.data.as_ushorts[row] if narrow else places.data.as_uints[row]
    if place >= count:
        raise IndexError(f"place {place} of {count}")
    return place
