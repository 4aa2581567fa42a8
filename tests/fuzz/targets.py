"""What the fuzzer calls: each target gives any bytes to a native parser and to its reference.

A target ends without an error if both return the same, or refuse with the same error. Sanitisers
watch the native code meanwhile.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import hiredis

from stream_dedup.clustering.linkage import reference_jaccard
from stream_dedup.columnar import _native as native_columns
from stream_dedup.columnar import reference as reference_columns
from stream_dedup.features import _folding, _pieces, folding, outcome_fields
from stream_dedup.features import _outcome_fields as native_fields
from stream_dedup.features import pieces as reference_pieces
from stream_dedup.features.prepare import Part
from stream_dedup.features.recipe import Recipe, load_recipe, replace
from stream_dedup.fingerprint import _kernel
from stream_dedup.fingerprint.bands import BITS
from stream_dedup.fingerprint.fingerprinter import segments_of
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.siphash import HashKey, siphash
from stream_dedup.index.redis._garbage import pack_garbage
from stream_dedup.index.redis._one_off import pack_patterns
from stream_dedup.index.redis._resp import pack_command
from stream_dedup.index.redis.garbage import reference_pack_garbage
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys
from stream_dedup.index.redis.namespace import FORMAT
from stream_dedup.index.redis.one_off import reference_pack_patterns
from stream_dedup.kafka._fastpath._batches import Unpacker, pack
from stream_dedup.offline import _native as native_offline
from stream_dedup.offline import reference as reference_offline
from stream_dedup.tables import _native as native_tables
from stream_dedup.tables import sketches
from stream_dedup.tables.entries import Prefixes, ReferenceBandEntries, ReferenceEntries, Row
from stream_dedup.tables.permutation import Layout
from stream_dedup.tables.store import Bands, ReferenceBandTables, ReferenceTables

T = TypeVar("T")

KEY = HashKey(b"sixteen secrets!")


class Source:
    """Takes numbers and bytes from the fuzzer's input, from its beginning; zeros after its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """Take so many bytes, or what is left."""
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def number(self, size: int = 1) -> int:
        """Take a number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def below(self, end: int) -> int:
        """Take a number from 0 to `end` - 1."""
        return self.number(-(-end.bit_length() // 8)) % end

    def pick(self, options: Sequence[T]) -> T:
        """Take one of some values."""
        return options[self.below(len(options))]

    def chunk(self) -> bytes:
        """Take bytes whose number comes before them."""
        return self.take(self.number())

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(len(self._data))


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[str, Any]:
    """What a function returns, or the kind of error with which it refuses."""
    try:
        return "returned", function(*arguments)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        return "refused", type(error)


def both(native: Callable[..., Any], reference: Callable[..., Any], *arguments: Any) -> None:
    """Call both with the same arguments, and compare."""
    expected = outcome(reference, *arguments)
    assert outcome(native, *arguments) == expected, (arguments, expected)


# ------------------------------------------------------------ fingerprint

SMALL = replace(load_recipe("logs"), input__max_bytes=64)
RECIPES: list[Recipe] = [
    load_recipe("logs"),
    load_recipe("words"),
    load_recipe("text"),
    SMALL,
    replace(SMALL, features__ngram=2, fingerprint__width=128),
    replace(SMALL, features__ngram=3, features__repeats="count", fingerprint__width=32),
    replace(
        SMALL,
        fingerprint__kind="minhash",
        fingerprint__least=2,
        match__k=0,
        match__jaccard=0,
        match__learn=0,
    ),
    replace(SMALL, features__weights={"default": 1_000, "placeholder": 0, "table": {"a": 0}}),
    replace(SMALL, features__repeats="count", features__weights={"default": 1_000}),
    replace(
        SMALL,
        text__classes=False,
        features__extractor="characters",
        features__ngram=2,
        match__learn=0,
    ),
]
KERNELS = [(_kernel.Kernel(recipe, KEY), ReferenceKernel(recipe, KEY)) for recipe in RECIPES]
WEIGHTS = (1, 0, 2, 7, 1_000, 2**31, 2**32 - 1)
SALTS = ((0, 0), (1, 0), (0, 1), (2**64 - 1, 2**64 - 1))


def kernel(source: Source) -> None:
    """Texts of one part each."""
    native, reference = source.pick(KERNELS)
    full = bool(source.below(2))
    texts = source.rest().split(b"\n")
    both(native.scan, reference.scan, texts, full)
    both(native.exact_of, reference.exact_of, texts[0])


def _parts(source: Source) -> list[list[Part]]:
    events: list[list[Part]] = [[]]
    while source:
        if source.below(4) == 0:
            events.append([])
        events[-1].append((source.chunk(), source.pick(WEIGHTS), source.pick(SALTS)))
    return events


def kernel_parts(source: Source) -> None:
    """Events of several parts, and features of other extractors."""
    native, reference = source.pick(KERNELS)
    full, folded = bool(source.below(2)), source.below(2)
    events = _parts(source)
    if folded:
        both(native.fold, reference.fold, events, full)
    else:
        both(native.scan_segments, reference.scan_segments, segments_of(events), full)


def hashes(source: Source) -> None:
    """Keyed hashes, and the similarity of sketches."""
    key = HashKey(source.take(16).ljust(16, b"\0"))
    left, right = (
        array("Q", sorted({source.number(1 + n % 8) for n in range(source.number())})[:64])
        for _ in range(2)
    )
    both(_kernel.jaccard, reference_jaccard, left.tobytes(), right.tobytes())
    both(_kernel.siphash, siphash, key, source.rest())


BANDS = load_recipe("text")
BANDS_KERNELS = [
    (_kernel.Kernel(recipe, KEY), ReferenceKernel(recipe, KEY))
    for recipe in (
        replace(BANDS, input__max_bytes=64),
        replace(BANDS, features__ngram=1, match__min_features=1, fingerprint__seed=7),
        replace(BANDS, features__ngram=16, input__max_bytes=1024),
        load_recipe("records"),
        replace(
            BANDS,
            input__max_bytes=256,
            text__fold="keep",
            features__extractor="words",
            features__ngram=2,
            features__repeats="count",
        ),
    )
]


def kernel_bands(source: Source) -> None:
    """Keys and sketches of bands, whole and as parts, and the similarity of the sketches."""
    native, reference = source.pick(BANDS_KERNELS)
    full, shape = bool(source.below(8)), source.below(3)
    left, right = (
        sketches.sketch(source.number(1 + n % 4) for n in range(source.number())) for _ in range(2)
    )
    both(native_tables.jaccard, sketches.reference_jaccard, left, right)
    if shape == 0:
        texts = source.rest().split(b"\n")
        both(native.scan, reference.scan, texts, full)
        both(native.scan, reference.scan, texts, full, source.below(60))
        found = native.scan(texts, True).sketches
        numbers_ = array("I", [row for row in range(len(found)) for _ in range(2)])[1:-1]
        both(native_tables.alike, sketches.reference_alike, numbers_, found, 0.42)
        for one, other in pairwise(found):
            both(native_tables.jaccard, sketches.reference_jaccard, one, other)
    elif shape == 1:
        both(native.fold, reference.fold, _parts(source), full)
    else:
        segments = segments_of(_parts(source))
        both(native.scan_segments, reference.scan_segments, segments, full)


# ------------------------------------------------------------ features

PIECES = (
    b"free", b"l", b"a", b"www.", b"http", b"://", b"/", b"@", b".com", b".", b"1", b"3", b"26",
    b"!", b"|", b"+", b"$", b"-", b",", b" ", b"x" * 63, b"5" * 3, b"\x80", b"\xed\xa0\x80",
    *(c.encode() for c in "\u0430\u0301\u200b\ufdfa\ud55c\u4e00\uff17\U0001f17f\u20ac\u3164"),
)  # fmt: skip


def look_alikes(source: Source) -> None:
    """Texts of any bytes, and of pieces that mean something to folding."""
    texts = [b"".join(source.pick(PIECES) for _ in range(source.below(40)))]
    texts += [source.chunk() for _ in range(source.below(4))]
    texts.append(source.rest())
    both(_folding.fold, folding.fold, texts)
    both(_folding.fold_both, folding.fold_both, texts)
    both(_folding.fold_words, folding.fold_words, texts)


PARTS = (b"a", b"b", b"ab", b"aaaaaaaa", b"#", b"\xff", b"\0" * 8)


def pieces(source: Source) -> None:
    """The tokens of a line, and where they are."""
    both(_pieces.pieces, reference_pieces.pieces, source.rest())


def passages(source: Source) -> None:
    """Passages left out of texts, of few letters, so that many begin alike."""
    found = [
        b"".join(source.pick(PARTS) for _ in range(source.below(24)))
        for _ in range(source.below(12))
    ]
    texts = [
        b"".join(source.pick((*PARTS, *found)) for _ in range(source.below(8)))
        for _ in range(source.below(4))
    ]
    found.append(source.chunk())
    texts.append(source.rest())
    kept = [each for each in found if len(each) >= folding.MIN_PASSAGE_BYTES]
    for some in (found, kept):
        both(
            lambda made: _folding.Passages(made).leave_out(texts),
            lambda made: folding.Passages(made).leave_out(texts),
            some,
        )


# ------------------------------------------------------------ tables

LAYOUTS = [
    Layout(32, 2, 4),
    Layout(64, 3, 5),
    Layout(64, 6, 8),
    Layout(128, 4, 6),
    Layout(64, 0, 1),
]


def _fingerprint(source: Source, width: int) -> int:
    # Often near one of a few, so that something is found.
    number: int = source.pick((0, 2**width - 1, int(f"0x{'5a' * (width // 8)}", 16)))
    for _ in range(source.below(4)):
        number ^= 1 << source.below(width)
    return number


def tables(source: Source) -> None:
    """Fingerprints inserted, deleted and searched."""
    layout = source.pick(LAYOUTS)
    native, reference = native_tables.NativeTables(layout), ReferenceTables(layout)
    entries: list[tuple[int, int]] = []
    while source:
        action, fingerprint = source.below(4), _fingerprint(source, layout.width)
        group = source.below(2)
        if action == 0 and entries:
            ours, theirs = entries.pop(source.below(len(entries)))
            native.delete(ours)
            reference.delete(theirs)
        elif action == 1:
            few = native.query(fingerprint, group, 1 + source.below(4))
            assert len(few.owners) <= few.candidates <= 4
            found = [t.query(fingerprint, group, 10**9) for t in (native, reference)]
            pairs = [sorted(zip(f.owners, f.distances, strict=True)) for f in found]
            assert pairs[0] == pairs[1]
            assert found[0].candidates == found[1].candidates
        else:
            owner = len(entries)
            made = (
                native.insert(fingerprint, group, owner),
                reference.insert(fingerprint, group, owner),
            )
            entries.append(made)
        assert len(native) == len(reference)


def _row(source: Source, fingerprint: int, group: int, owner: int) -> Row:
    first, last = float(source.number(4)), float(source.number(4))
    exact, exact_slice = source.number(9), source.number(2)
    searchable, hashes = bool(source.below(2)), source.chunk()
    one, other, third = source.chunk(), source.chunk(), source.chunk()
    return (
        first, last, owner, group, exact, exact_slice, fingerprint, searchable, hashes, one, other,
        third,
    )  # fmt: skip


def entries(source: Source) -> None:
    """Members of the tables in Redis, packed and unpacked."""
    layout, slices = source.pick(LAYOUTS), 1 << source.below(24)
    native, reference = (
        native_tables.NativeEntries(layout, slices),
        ReferenceEntries(layout, slices),
    )
    fingerprint, group, owner = source.number(17), source.number(5), source.number(9)
    both(native.arrange, reference.arrange, fingerprint, group, owner, source.chunk())
    row = _row(source, fingerprint, group, owner)
    prefixes = Prefixes(source.chunk(), source.chunk(), source.chunk())
    both(native.pack, reference.pack, [row] * source.below(3), prefixes)
    table = source.below(layout.tables)
    both(native.fingerprint, reference.fingerprint, source.rest(), table)


def garbage(source: Source) -> None:
    """What closed clusters have left, whole or cut off, with records, names and keys of bands."""
    slices = 1 << source.below(9)
    if source.below(2):
        layout = NamespaceLayout(FORMAT, 64, 6, 7, slices, slices, 1)
        entries_ = native_tables.NativeEntries(layout.table_layout, slices)
    else:
        layout = NamespaceLayout(FORMAT, BITS, MOST.keys - 1, MOST.keys, slices, slices, 1)
        entries_ = native_tables.NativeBandEntries(layout.table_layout, slices)
    head, name = layout.names_at, layout.name_bytes
    pieces: list[bytes] = []
    while source and len(pieces) < 4:
        count = source.below(5)
        records = source.take(8 * count)
        rest = source.take(head + source.below(3) * name + source.below(4))
        pieces.append(source.take(8) + bytes([0, count]) + records + rest)
    shard = ShardKeys("fuzzed", 0)
    call_work = layout.name_work + source.below(200)
    both(pack_garbage, reference_pack_garbage, pieces, shard, layout, entries_.arrange, call_work)


def patterns(source: Source) -> None:
    """Keys of patterns for a script."""
    shift, keys = source.pick([64, 63, 56, 40]), source.chunk()
    rows = []
    while source:
        numbers_ = array("Q", [source.number(8), source.number()])
        for _ in range(source.below(4)):
            about = source.below(128) | source.number(3) << 8 | source.number(3) << 32
            numbers_.extend((source.number(8), about))
        rows.append((numbers_.tobytes(), source.number(5), source.number(9)))
    both(pack_patterns, reference_pack_patterns, rows, shift)
    with suppress(ValueError):
        pack_patterns([(keys, 0, 0)], shift)


FEW = Bands(keys=4, key_bytes=1, crowd=3)
MOST = Bands(keys=16, key_bytes=6, crowd=16)
KEYS_OF_BANDS = Layout(BITS, MOST.keys - 1, MOST.keys)


def band_tables(source: Source) -> None:
    """Keys of bands inserted, deleted and searched; and as members of the tables in Redis."""
    made = source.pick((FEW, FEW, MOST))
    native, reference = native_tables.NativeBandTables(made), ReferenceBandTables(made)
    entries: list[tuple[int, int]] = []
    while source:
        action, group, owner = source.below(8), source.below(2), source.below(20)
        keys = b"".join(bytes([source.below(3)]) * made.key_bytes for _ in range(made.keys))
        fingerprint = int.from_bytes(keys, "big")
        if action == 0 and entries:
            ours, theirs = entries.pop(source.below(len(entries)))
            native.delete(ours)
            reference.delete(theirs)
        elif action == 1:
            gone = 1_000 + source.number(2)
            both(native.delete, reference.delete, gone)
        else:
            entries.append(
                (
                    native.insert(fingerprint, group, owner),
                    reference.insert(fingerprint, group, owner),
                )
            )
        found = [t.query(fingerprint, group, 10**9) for t in (native, reference)]
        near = [sorted(zip(f.owners, f.distances, strict=True)) for f in found]
        assert near[0] == near[1]
        assert found[0].candidates == found[1].candidates
        assert (len(native), native.crowded) == (len(reference), reference.crowded)


def band_entries(source: Source) -> None:
    """Members of the tables in Redis, packed and unpacked."""
    slices = 1 << source.below(24)
    native, reference = (
        native_tables.NativeBandEntries(KEYS_OF_BANDS, slices),
        ReferenceBandEntries(KEYS_OF_BANDS, slices),
    )
    fingerprint, group, owner = source.number(97), source.number(5), source.number(9)
    both(native.arrange, reference.arrange, fingerprint, group, owner, source.chunk())
    row = _row(source, fingerprint, group, owner)
    prefixes = Prefixes(source.chunk(), source.chunk(), source.chunk())
    both(native.pack, reference.pack, [row] * source.below(3), prefixes)
    table = source.below(KEYS_OF_BANDS.tables)
    both(native.fingerprint, reference.fingerprint, source.rest(), table)


# ------------------------------------------------------------ columnar


DOCUMENT_NAMES = [*sorted(outcome_fields._NAMES)[::300], *outcome_fields.PARENTS, "level", "a", ""]
TRACE = "Traceback (most recent call last):\n" * 2
SCALARS = [None, True, 0, 503, 1.0, 0.5, 10**30, "", "ok", "503", "error", TRACE, b"ok", b"a" * 99]


def look(native: bool, document: dict[str, Any]) -> list[str]:
    """What is found in a document, in one order."""
    values: list[Any] = []
    traces: list[tuple[str, object]] = []
    if native:
        limits = outcome_fields._ROLES, outcome_fields.MAX_FIELDS, outcome_fields._MAX_WORD
        native_fields.look(document, *limits, values, traces)
    else:
        outcome_fields.look(document, values, traces)
    fields = [values[at : at + 4] for at in range(0, len(values), 4)]
    return sorted(map(repr, [*fields, *traces]))


def documents(source: Source) -> None:
    """Fields of JSON events beside their text, in objects of at most eight fields."""

    def value(depth: int) -> Any:
        kind = source.below(4) if depth < 5 else 0
        if kind == 1:
            return [value(depth + 1) for _ in range(source.below(3))]
        return document(depth + 1) if kind > 1 else source.pick(SCALARS)

    def document(depth: int) -> dict[str, Any]:
        return {source.pick(DOCUMENT_NAMES): value(depth) for _ in range(source.below(9))}

    both(partial(look, True), partial(look, False), document(0))


def columns(source: Source) -> None:
    """Columns of equal objects, and codes of any value."""
    pool: list[Any] = [None, b"", b"a", b"a" * 300, *range(300, 310)]
    column = [source.pick(pool) for _ in range(source.number())]
    both(native_columns.dictionary_encode, reference_columns.dictionary_encode, column)
    both(native_columns.multiplied, reference_columns.multiplied, [source.number(9)], 3)
    some = [value for value in column if not isinstance(value, int)]
    both(native_columns.column_stats, reference_columns.column_stats, some)
    values_only = [value for value in some if value is not None]
    both(native_columns.rows_beginning, reference_columns.rows_beginning, values_only, b"ab")
    both(native_columns.rows_containing, reference_columns.rows_containing, values_only, b"a")
    quoted = [
        source.pick([b"<", b"a"]) + value + source.pick([b">", b"> "]) for value in values_only
    ]
    split = native_columns.split_quoted, reference_columns.split_quoted
    both(*split, quoted, b"<", source.pick([b">", b"> "]), source.number(3))
    count = 1 + source.below(6)
    numbers = [source.number(8) - 2**63 for _ in range(source.below(9))]
    codes = array(source.pick("HI"), [source.below(count + 1) for _ in range(len(numbers))])
    values = list(range(count))
    wanted = [bool(number % 2) for number in values]
    both(native_columns.take, reference_columns.take, values, codes)
    both(native_columns.rows_of, reference_columns.rows_of, codes, wanted)
    both(native_columns.group_min_max, reference_columns.group_min_max, codes, numbers, count)


# ------------------------------------------------------------ Kafka and Redis


def batches(source: Source) -> None:
    """Any bytes as records of a Kafka batch: unpacked, or refused; and packed again."""
    count, wanted, most = source.number(2) - 8, source.number(), 1 + source.number()
    unpacker = Unpacker(source.rest(), count, 0, 0)
    try:
        while taken := unpacker.take(most, wanted):
            offsets, timestamps, keys, values, headers = taken
            assert len(offsets) == len(timestamps) == len(keys) == len(values) == len(headers)
            if all(0 <= stamp < 2**60 for stamp in timestamps):
                head = 61
                packed, number, first, _ = pack(timestamps, keys, values, headers, 1 << 20)
                again = Unpacker(bytes(packed[head:]), number, 0, first).take(number, 0)
                assert again is not None
                assert again[1:] == (timestamps, keys, values, headers)
    except ValueError:
        return


def resp(source: Source) -> None:
    """Commands for Redis, beside hiredis's packing."""
    arguments: list[bytes | str | int] = []
    while source:
        kind, raw = source.below(3), source.chunk()
        arguments.append(
            raw if kind == 0 else raw.decode("latin-1") if kind == 1 else int.from_bytes(raw[:9])
        )
    if arguments:
        whole: Any = tuple(arguments)
        assert pack_command(whole) == hiredis.pack_command(whole)


# ------------------------------------------------------------ offline


def numbers(source: Source) -> None:
    """Files of numbers: read, sorted, and written."""
    width, hexadecimal = source.pick((32, 64, 128)), bool(source.below(2))
    as_json, text = bool(source.below(2)), source.rest()
    both(native_offline.parse, reference_offline.parse, text, hexadecimal, width)
    words, _ = reference_offline.parse(text, hexadecimal, width)
    size = reference_offline.word_bytes(width)
    ends = array("Q", range(1, len(words) // size + 1))
    both(native_offline.rows, reference_offline.rows, words, ends, width, hexadecimal, as_json)
    ours, theirs = bytearray(words), bytearray(words)
    kept = native_offline.sort_distinct(ours, width)
    assert kept == reference_offline.sort_distinct(theirs, width)
    assert ours[: kept * size] == theirs[: kept * size]


def pairs(source: Source) -> None:
    """Pairs and clusters of files of fingerprints."""
    layout = source.pick(LAYOUTS)
    found = {_fingerprint(source, layout.width) for _ in range(source.below(60))}
    words = reference_offline.packed(sorted(found), layout.width)
    table, steps = source.below(layout.tables), 1 + source.below(20)
    results = []
    for module in (native_offline, reference_offline):
        part = module.Part(layout, table, 0, 1 << 16)
        part.add(words)
        part.sort()
        near = b""
        while not part.done:
            near += part.step(steps, 50)
        components = module.Components(layout.width)
        numbers_ = components.numbers(words)
        components.join(near)
        results.append(
            (near, part.compared, bytes(components.words()), components.grouped(numbers_))
        )
    assert results[0] == results[1]


def band_pairs(source: Source) -> None:
    """Fingerprints of bands added, and who shares a key with an earlier one."""
    keys, crowd = 1 + source.below(64), 1 + source.below(64)
    pair = native_offline.BandPairs(keys, crowd), reference_offline.BandPairs(keys, crowd)
    first = source.number(2)
    while source:
        count = source.below(300)
        made = b"".join(
            bytes([source.below(3)]) * 4 for _ in range(count * keys if count < 9 else keys)
        )
        made *= count if count >= 9 else 1
        owners = array("I", range(first, first + count))
        found = [each.add(made, owners) for each in pair]
        ours, theirs = (sorted(zip(f[1::2], f[::2], strict=True)) for f in found)
        assert ours == theirs
        first += count


TARGETS: dict[str, Callable[[Source], None]] = {
    target.__name__: target
    for target in (
        kernel, kernel_parts, kernel_bands, hashes, look_alikes, pieces, passages, tables,
        entries, garbage, patterns, band_tables, band_entries, documents, columns, batches, resp,
        numbers, pairs, band_pairs,
    )
}  # fmt: skip
"""By name: each has a folder of inputs in ``corpus``."""
