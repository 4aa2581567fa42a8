"""Entries: the tables as sorted sets of byte strings, in slices. Native, or in Python.

Problem: store the tables in a server that many processes share. It has sorted sets of byte strings
and can list the members that begin with given bytes; it has no fingerprints, tables or groups.

Idea: in each table (see `permutation`) an entry is one *member*. It begins with what all entries of
a bucket share, in whole bytes: the group, then the prefix. So "begins with" is the look-up. The
remaining bits follow, then the owner, so that equal fingerprints of two owners are two members.
Within a bucket only the remaining bits differ; their distance is that of the fingerprints. Parts
have the same width in every table, that of the widest, so that the same offsets apply to all.

One sorted set a table would grow without bounds and could not be spread over servers, so each table
is divided into *slices*, one sorted set each. The group and prefix decide the slice, so a look-up
needs one slice a table. Their bits are mixed, as prefixes are not spread evenly (similar texts have
similar fingerprints).

Worked bits, W = 8, k = 1, m = 2, the fingerprint 1011 0010 of group 7 and owner 9::

              group   prefix      rest        owner
    table 0   0007    1011 0000   0010 0000   0000000000000009
    table 1   0007    0010 0000   1011 0000   0000000000000009

    >>> entries = ReferenceEntries(Layout(8, 1, 2), slices=16)
    >>> keys, members = entries.arrange(0b1011_0010, 7, 9, b"t:")
    >>> keys
    [b't:0:5', b't:1:11']
    >>> members.hex(" ", entries.member_bytes)
    '0007b0200000000000000009 000720b00000000000000009'
    >>> entries.prefix_bytes, entries.member_bytes
    (3, 12)

Fingerprints wider than `MAX_WIDTH` are the keys of bands (`fingerprint.bands`): blocks of which one
in common is near enough, so k = m - 1 and a table's prefix is one key. Nobody needs the remaining
bits there, and nothing needs an order, so a slice is one string: its members one after the other,
in half of the memory. A member is a *mark* of three bytes, the last ones of the key mixed with the
group, then the owner. The first bits of the same mix are the slice's number. Two keys with the same
mark in one slice are each other's candidates; that is rare, and whoever reads the owner's keys sees
it.

A script's arguments for many fingerprints are their keys, and everything else in one byte string:
parts one after the other, each after its length (see `Row`).

This is a stored format: after a change of a member's bytes, of the hash or of the number of slices,
stored entries would no longer be found.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from sys import byteorder
from typing import NamedTuple, Protocol

from stream_dedup.native import native_or
from stream_dedup.tables import sketches
from stream_dedup.tables.permutation import Layout

MAX_WIDTH = 128
MAX_BANDS_WIDTH = 1024
MAX_SLICES = 2**24
GROUP_BYTES = 2
MARK_BYTES = 3
OWNER_BYTES = 8

_ALL_64 = 2**64 - 1
_TIMES = Struct(">2d")
_LENGTH = Struct(">I")


class Prefixes(NamedTuple):
    """The beginnings of keys: of owners, of slices of exact hashes, and of slices of tables."""

    owner: bytes
    exact: bytes
    table: bytes


Row = tuple[float, float, int, int, int, int, int, bool, bytes, bytes, bytes, bytes]
"""A fingerprint in the arguments of a script: two times, its owner, its group, its exact hash and
the slice of that, the fingerprint, whether it has members (otherwise none are packed), hashes of
eight bytes in the machine's order (a sketch, where fingerprints are the keys of bands), and three
texts.

Packed: the times (doubles), owner(8), group(4), exact hash(8); then, each after its length(4):
fingerprint, hashes (or the sketch, packed), the first two texts, members of all tables, the last
text. All big-endian.
"""


class Entries(Protocol):
    """Stores a fingerprint as one member of one slice of each table."""

    def __init__(self, layout: Layout, slices: int) -> None: ...

    @property
    def prefix_bytes(self) -> int:
        """The length of the common beginning of all members that one look-up finds."""

    @property
    def member_bytes(self) -> int:
        """The length of a member; its last eight bytes are the owner."""

    def arrange(
        self, fingerprint: int, group: int, owner: int, key_prefix: bytes
    ) -> tuple[list[bytes], bytes]:
        """Return the keys and members of a fingerprint.

        Args:
            fingerprint: bits beyond the layout's width are ignored.
            group: 32 bits of a hash, of which the low 16 are used: a look-up may also find entries
                of other groups.
            owner: 64 bits.
            key_prefix: the beginning of the keys.

        Returns:
            For each table the key of its slice, `<key_prefix><table>:<slice>`; and the members of
            all tables, concatenated.

        Raises:
            OverflowError: the group or the owner has more bits, or is negative.
        """

    def pack(self, rows: Sequence[Row], prefixes: Prefixes) -> tuple[list[bytes], bytes]:
        """Return the keys and the packed argument of a script for many fingerprints.

        Returns:
            The key of each owner (its number in sixteen hexadecimal digits), then for each row the
            key of its slice of exact hashes and, if it has members, those of `arrange`; and the
            number of rows (4 bytes) with the packed rows.

        Raises:
            OverflowError: a number is negative or has too many bits; a fingerprint may be as wide
                as the layout, rounded up to whole bytes.
            ValueError: hashes are cut off, or what should be a sketch is none.
        """

    def slice_key(self, member: bytes, table: int, key_prefix: bytes) -> bytes:
        """Return the key of the slice in which a table stores this member.

        Raises:
            ValueError: members of this layout have another length, or hold a mark, which does not
                say it.
        """

    def fingerprint(self, member: bytes, table: int) -> int:
        """Return the fingerprint that a table stores as this member.

        Raises:
            ValueError: members of this layout have another length, or hold a mark.
        """


class ReferenceEntries:
    """Entries by arithmetic on integers; see `Entries` for the methods.

    Args:
        layout: of at most 128 bits.
        slices: number of slices of each table; a power of two, at most 2^24.
    """

    def __init__(self, layout: Layout, slices: int) -> None:
        if layout.width > MAX_WIDTH:
            raise ValueError(f"fingerprints have at most {MAX_WIDTH} bits, not {layout.width}")
        check_slices(slices)
        self._layout = layout
        self._slice_bits = slices.bit_length() - 1
        self._prefix_room = -(-max(layout.prefix_bits) // 8)
        self._rest_room = -(-(layout.width - min(layout.prefix_bits)) // 8)
        self.prefix_bytes = GROUP_BYTES + self._prefix_room
        self.member_bytes = self.prefix_bytes + self._rest_room + OWNER_BYTES

    def arrange(
        self, fingerprint: int, group: int, owner: int, key_prefix: bytes
    ) -> tuple[list[bytes], bytes]:
        first = group.to_bytes(4, "big")[-GROUP_BYTES:]
        group %= 1 << 8 * GROUP_BYTES
        last = owner.to_bytes(OWNER_BYTES, "big")
        keys = []
        members = bytearray()
        for table, prefix_bits in enumerate(self._layout.prefix_bits):
            rest_bits = self._layout.width - prefix_bits
            permuted = self._layout.permute(fingerprint, table)
            prefix = permuted >> rest_bits
            rest = permuted & (1 << rest_bits) - 1
            number = slice_of(prefix, prefix_bits, group, self._slice_bits)
            keys.append(b"%b%d:%d" % (key_prefix, table, number))
            members += first
            members += (prefix << 8 * self._prefix_room - prefix_bits).to_bytes(
                self._prefix_room, "big"
            )
            members += (rest << 8 * self._rest_room - rest_bits).to_bytes(self._rest_room, "big")
            members += last
        return keys, bytes(members)

    def pack(self, rows: Sequence[Row], prefixes: Prefixes) -> tuple[list[bytes], bytes]:
        keys: list[bytes] = []
        slices: list[bytes] = []
        packed = [_LENGTH.pack(len(rows))]
        width_bytes = -(-self._layout.width // 8)
        packed_hashes = [self._packed(row[8]) for row in rows]  # first of all, as the native one
        for (
            first, last, owner, group, exact, exact_slice, fingerprint, searchable, _, one, other,
            third,
        ), hashes in zip(rows, packed_hashes, strict=True):  # fmt: skip
            keys.append(b"%b%b" % (prefixes.owner, owner.to_bytes(8, "big").hex().encode()))
            slices.append(b"%b%d" % (prefixes.exact, exact_slice))
            members = b""
            if searchable:
                tables, members = self.arrange(fingerprint, group, owner, prefixes.table)
                slices += tables
            packed += (
                _TIMES.pack(first, last), owner.to_bytes(8, "big"), group.to_bytes(4, "big"),
                exact.to_bytes(8, "big"),
            )  # fmt: skip
            whole = fingerprint.to_bytes(width_bytes, "big")
            for part in (whole, hashes, one, other, members, third):
                packed += (_LENGTH.pack(len(part)), part)
        return keys + slices, b"".join(packed)

    def _packed(self, hashes: bytes) -> bytes:
        if len(hashes) % 8:
            raise ValueError("hashes have 8 bytes each")
        words = array("Q", hashes)
        if byteorder == "little":
            words.byteswap()
        return words.tobytes()

    def slice_key(self, member: bytes, table: int, key_prefix: bytes) -> bytes:
        prefix_bits = self._layout.prefix_bits[table]
        prefix = self._prefix(member) >> 8 * self._prefix_room - prefix_bits
        number = slice_of(prefix, prefix_bits, parts(member)[0], self._slice_bits)
        return b"%b%d:%d" % (key_prefix, table, number)

    def fingerprint(self, member: bytes, table: int) -> int:
        prefix_bits = self._layout.prefix_bits[table]
        rest_bits = self._layout.width - prefix_bits
        prefix = self._prefix(member)
        rest = int.from_bytes(member[self.prefix_bytes : -OWNER_BYTES], "big")
        permuted = prefix >> 8 * self._prefix_room - prefix_bits << rest_bits
        return self._layout.restore(permuted | rest >> 8 * self._rest_room - rest_bits, table)

    def _prefix(self, member: bytes) -> int:
        if len(member) != self.member_bytes:
            raise ValueError(f"a member has {self.member_bytes} bytes, not {len(member)}")
        return int.from_bytes(member[GROUP_BYTES : self.prefix_bytes], "big")


class ReferenceBandEntries(ReferenceEntries):
    """Entries of the keys of bands; see `Entries` for the methods.

    >>> entries = ReferenceBandEntries(Layout(192, 3, 4), slices=16)
    >>> keys, members = entries.arrange(0x5EED << 144, 7, 9, b"t:")
    >>> keys
    [b't:0:10', b't:1:12', b't:2:12', b't:3:12']
    >>> members[: 2 * entries.member_bytes].hex(" ", entries.member_bytes)
    '95a9490000000000000009 e97e780000000000000009'

    Args:
        layout: its blocks are the keys, of whole bytes and at most eight each; k is one less than
            there are.
        slices: number of slices of each table; a power of two, at most 2^24.
    """

    def __init__(self, layout: Layout, slices: int) -> None:
        width, keys = layout.width, layout.blocks
        whole = width % (8 * keys) == 0 and width <= min(MAX_BANDS_WIDTH, 64 * keys)
        if layout.k != keys - 1 or not whole:
            raise ValueError(f"{layout} is not a layout of the keys of bands")
        check_slices(slices)
        self._layout = layout
        self._slice_bits = slices.bit_length() - 1
        self._key_bits = width // keys
        self.prefix_bytes = MARK_BYTES
        self.member_bytes = MARK_BYTES + OWNER_BYTES

    def arrange(
        self, fingerprint: int, group: int, owner: int, key_prefix: bytes
    ) -> tuple[list[bytes], bytes]:
        group = int.from_bytes(group.to_bytes(4, "big")[-GROUP_BYTES:], "big")
        last = owner.to_bytes(OWNER_BYTES, "big")
        bits, tables = self._key_bits, self._layout.blocks
        keys = []
        members = bytearray()
        for table in range(tables):
            key = fingerprint >> bits * (tables - 1 - table) & (1 << bits) - 1
            number = slice_of(key, bits, group, self._slice_bits)
            keys.append(b"%b%d:%d" % (key_prefix, table, number))
            mark = mixed(key, bits, group) & (1 << 8 * MARK_BYTES) - 1
            members += mark.to_bytes(MARK_BYTES, "big") + last
        return keys, bytes(members)

    def _packed(self, hashes: bytes) -> bytes:
        return sketches.reference_pack(hashes)

    def slice_key(self, member: bytes, table: int, key_prefix: bytes) -> bytes:
        raise ValueError(f"{key_prefix!r}: member {member.hex()} of table {table} holds a mark")

    def fingerprint(self, member: bytes, table: int) -> int:
        raise ValueError(f"member {member.hex()} of table {table} holds a mark")


def parts(member: bytes) -> tuple[int, int]:
    """Return the group and the owner of a member of any layout but that of bands.

    >>> parts(bytes.fromhex("0007b0200000000000000009"))
    (7, 9)
    """
    return int.from_bytes(member[:GROUP_BYTES], "big"), int.from_bytes(member[-OWNER_BYTES:], "big")


def slice_of(prefix: int, prefix_bits: int, group: int, slice_bits: int) -> int:
    """Return the slice of a bucket, out of 2^slice_bits; part of the stored format.

    The prefix is mixed by invertible steps (XOR with the group's bits, multiplication by an odd
    number, XOR of the upper half into the lower), which permute the prefixes: every slice gets
    equally many of a group's 2^prefix_bits buckets. With a hash, some slices would get four times
    as many as others. If there are more slices than prefixes, the group decides which ones it uses.
    Doubling the number of slices divides each slice in two.
    """
    bits = min(prefix_bits, 64)
    x = mixed((prefix ^ prefix >> 64) & _ALL_64, bits, group)
    if bits >= slice_bits:
        return x >> bits - slice_bits
    spread = group * 0x9E3779B97F4A7C15 * 0xC4CEB9FE1A85EC53 & _ALL_64
    return x << slice_bits - bits | spread >> 64 - (slice_bits - bits)


def mixed(x: int, bits: int, group: int) -> int:
    """Return the bits of a prefix, 64 at most, mixed with those of a group; see `slice_of`."""
    ones = (1 << bits) - 1
    spread = group * 0x9E3779B97F4A7C15 & _ALL_64
    x = (x ^ spread >> 64 - bits) * 0xFF51AFD7ED558CCD & ones
    x ^= x >> (bits + 1) // 2
    return x * 0xC4CEB9FE1A85EC53 & ones


def check_slices(slices: int) -> None:
    """Refuse a number of slices that no table has.

    Raises:
        ValueError: it is not a power of two, or too large.
    """
    if not 1 <= slices <= MAX_SLICES or slices.bit_count() != 1:
        raise ValueError(f"slices are a power of two from 1 to {MAX_SLICES}, not {slices}")


def make_entries(layout: Layout, slices: int) -> Entries:
    """Make the native entries, or the reference where they are not used."""
    make: type[Entries]
    if layout.width > MAX_WIDTH:
        make = native_or("tables._native", "NativeBandEntries", ReferenceBandEntries)
    else:
        make = native_or("tables._native", "NativeEntries", ReferenceEntries)
    return make(layout, slices)
