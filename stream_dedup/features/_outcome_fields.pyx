# cython: language_level=3, embedsignature=True
# cython: freethreading_compatible=False
"""`look` of `outcome_fields`, natively."""

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject

from stream_dedup.features.outcome_fields import LOG4J_FRAMES

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(dict, object) except? NULL  # borrowed

cdef enum:
    LEVEL = 1
    TRACE = 2
    TEXT = 4
    PARENT = 8


def look(
    dict document,
    dict roles,
    tuple most,
    Py_ssize_t max_word,
    list values,
    list traces,
    Py_ssize_t depth=0,
):
    """See `outcome_fields.look`.

    Returns:
        -1 if an object has more fields than `most` says: which of them count is not decided here.
    """
    cdef Py_ssize_t at = 0, count = 0, limit = most[depth]
    cdef PyObject* key
    cdef PyObject* item
    cdef PyObject* role
    cdef int kinds
    while PyDict_Next(document, &at, &key, &item):
        role = PyDict_GetItemWithError(roles, <object>key)
        if role == NULL:
            continue
        count += 1
        if count > limit:
            return -1
        kinds = <object>role
        name, value = <object>key, <object>item
        kind = type(value)
        if kind is str or kind is bytes:
            if kinds & TRACE:
                traces.append((name, value))
                continue
            if len(value) > max_word or kinds & TEXT:
                continue
        elif kind is dict:
            if kinds & TRACE and LOG4J_FRAMES in <dict>value:
                traces.append((name, value))
            if kinds & PARENT and depth + 1 < len(most):
                if look(value, roles, most, max_word, values, traces, depth + 1) < 0:
                    return -1
            if not kinds & LEVEL:
                continue
            value, kind = (<dict>value).get("name"), str
            if not isinstance(value, str):
                continue
        elif kind is list:
            if kinds & TRACE:
                traces.append((name, value))
            continue
        elif kinds & TEXT or value is None or (kind is float and not value.is_integer()):
            continue
        values.append(name)
        values.append(depth)
        values.append(kind)
        values.append(value)
    return count
