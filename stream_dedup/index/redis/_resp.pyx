# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=False
"""Commands as Redis reads them, packed natively.

`hiredis.pack_command` says the same of what is sent here and takes a tenth of a microsecond an
argument, fifteen times as long. A command is an array of strings::

    *2 CR LF  $4 CR LF  PING CR LF  $2 CR LF  hi CR LF
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.string cimport memcpy


def pack_command(tuple arguments not None):
    """A command's bytes.

    Args:
        arguments: bytes, text (as UTF-8) and whole numbers, the command's name the first.

    Raises:
        TypeError: an argument is none of these.
        UnicodeEncodeError: a text is none.
    """
    cdef list parts = [None] * len(arguments)
    cdef Py_ssize_t place, size = head_bytes(len(arguments))
    cdef object argument
    cdef bytes part, command
    cdef char* to
    for place in range(len(arguments)):
        argument = arguments[place]
        if PyBytes_CheckExact(argument):
            part = argument
        elif isinstance(argument, bytes):
            part = bytes(argument)
        elif isinstance(argument, str):
            part = argument.encode()
        elif type(argument) is int:
            part = b"%d" % argument
        else:
            raise TypeError(f"argument {place} is {type(argument).__name__}")
        parts[place] = part
        size += head_bytes(PyBytes_GET_SIZE(part)) + PyBytes_GET_SIZE(part) + 2
    command = PyBytes_FromStringAndSize(NULL, size)
    to = put_head(PyBytes_AS_STRING(command), c"*", len(arguments))
    for part in parts:
        to = put_head(to, c"$", PyBytes_GET_SIZE(part))
        memcpy(to, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        to = put_end(to + PyBytes_GET_SIZE(part))
    return command


cdef inline Py_ssize_t digits_of(Py_ssize_t number) noexcept nogil:
    cdef Py_ssize_t digits = 1
    while number > 9:
        number //= 10
        digits += 1
    return digits


cdef inline Py_ssize_t head_bytes(Py_ssize_t number) noexcept nogil:
    return 1 + digits_of(number) + 2


cdef inline char* put_head(char* to, char kind, Py_ssize_t number) noexcept nogil:
    cdef Py_ssize_t digits = digits_of(number), place
    to[0] = kind
    for place in range(digits, 0, -1):
        to[place] = <char>(c"0" + number % 10)
        number //= 10
    return put_end(to + 1 + digits)


cdef inline char* put_end(char* to) noexcept nogil:
    to[0] = c"\r"
    to[1] = c"\n"
    return to + 2
