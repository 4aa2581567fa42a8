# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: freethreading_compatible=True
"""The function `pieces` of the module `pieces`, natively. What reads a line is in `_pieces.pxd`; the kernel uses it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from stream_dedup.features import tokens
from stream_dedup.features import pieces as reference

cdef Tables TABLES

fill_tables(&TABLES, tokens.LOG_DELIMITERS)


def pieces(bytes text not None):
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(text)
    cdef bint variable
    cdef Line line
    cdef Piece piece
    cdef list found = []
    start_line(&line, &TABLES, at, PyBytes_GET_SIZE(text))
    while next_piece(&line, &TABLES, &piece):
        variable = piece.variable or at[piece.start] == SUBSTITUTE or is_of_class(
            TABLES.classes, at + piece.start, piece.end - piece.start, piece.held
        )
        found.append((
            piece.start, piece.end, variable, piece.assigned and not variable,
            piece.nested and not variable, piece.absent,
        ))
    if never_closed(&line):
        return [each[:4] + (each[4] and each[0] < line.outermost,) + each[5:] for each in found]
    return found


if (MAX_WORDS, SUBSTITUTE) != (reference.MAX_WORDS, tokens.SUBSTITUTE):
    raise ImportError("the native reader of lines was built for another version: reinstall")
