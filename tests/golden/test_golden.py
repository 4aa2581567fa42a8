"""Golden numbers: digests, exact hashes and fingerprints that no version may change.

They stand in users' indexes. Where a change makes them differ on purpose, the digest's own version
("stream-dedup recipe 1") must change with them.
"""

from __future__ import annotations

from typing import Any

import pytest

from stream_dedup.features.recipe import Recipe, load_recipe, replace, shipped
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import is_native, native_module
from stream_dedup.fingerprint.reference import ReferenceKernel

EVENTS = [
    b"Failed password for root from 10.0.0.7 port 4422 ssh2",
    b"Mon Jan 15 07:05:09 web-1 sshd[42]: Accepted key for a@b.org in /var/log, www.example.com",
    "Größe ﬁx: 漢字 WIN a FREE prize! http://x.example/y".encode(),
    b"\x00\xff not utf-8 \x1a the the the",
    b"",
]

BUILT: dict[str, dict[str, Any]] = {
    "default": {},
    "words-32-bits": {"fingerprint__width": 32, "features__ngram": 2, "features__repeats": "count"},
    "characters-128-bits": {
        "fingerprint__width": 128,
        "fingerprint__seed": 7,
        "features__extractor": "characters",
        "features__ngram": 4,
    },
    "minhash": {
        "fingerprint__kind": "minhash",
        "fingerprint__least": 2,
        "match__k": 0,
        "features__extractor": "syllables",
    },
    "masked-and-weighted": {
        "text__case": "lower",
        "text__mask": [{"name": "user", "pattern": "root|admin"}],
        "text__masks": ["ipv4", "number"],
        "features__weights": {"default": 2, "placeholder": 0, "table": {"for": 0, "password": 9}},
        "input__max_bytes": 64,
    },
}

GOLDEN: dict[str, tuple[str, list[tuple[str, int, str]]]] = {
    "json": (
        "b9abaca96a6793bb",
        [
            ("5017f94ab4356814", 6, "e18c5900d6a2b842"),
            ("d193572d3933c57f", 5, "c5d0a9a03e83f936"),
            ("b909ba527d48fa56", 8, "a106c0a68e42233a"),
            ("cd750ce9517bdd3e", 5, "6c8e4db39257b99c"),
            ("fa1329e5a79503fc", 0, "a49ae922d7d211f8"),
        ],
    ),
    "logs": (
        "e4bab17433e60216",
        [
            ("7c52b00b12695205", 6, "dcedc8deed3f17c5"),
            ("8310b1e5c0430539", 5, "e040349a011352b4"),
            ("f05812985cdba869", 8, "942755f0b5dec0b9"),
            ("e16909c9af35a2f4", 5, "482000c109c10204"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "text": (
        "e9fe5a9426172f96",
        [
            ("448800b6eb360cca", 53, "c8a372e6799b131a"),
            ("a4d860bf32e91eff", 123, "c82ef2de22dbf328"),
            ("f1dcf684afbd4fb9", 34, "25a9d75046667421"),
            ("85ebedc9f2a6c77f", 30, "020f6a64c5837610"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "words": (
        "f76b7a76d51f40be",
        [
            ("146d3c50348762b2", 12, "ccbccecc48171785"),
            ("c7ee7c43bae51427", 22, "21cc19fe371b2ea0"),
            ("39a5a352e0bf45bd", 11, "04d65283f45ada91"),
            ("dd46bf4ffc199f0a", 7, "002e3241a9c3020c"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "java32": (
        "ae503fdac795d955",
        [
            ("0eec3c51f95d454f", 9, "00318888"),
            ("0b0814d4df3ecb07", 13, "00010a6f"),
            ("cbbd4bf1d34d2228", 8, "00000c65"),
            ("c1dadb87dba2a85d", 6, "0001e0f1"),
            ("28df63b7cc57c3cb", 1, "00000000"),
        ],
    ),
    "letters5": (
        "01311830fc858e7c",
        [
            ("532fb6bcf5edf4c5", 53, "00"),
            ("409382e5bd8781aa", 89, "00"),
            ("84eddd9e42150688", 49, "00"),
            ("1708ba2c003f76e1", 26, "04"),
            ("0000000000000000", 0, "1f"),
        ],
    ),
    "md5-128": (
        "9cefd0499daf6c2a",
        [
            ("78aac793172cc6f3", 12, "d78d40ca07a1445f664bcbdcc8c24440"),
            ("1955ea0bf7f840a4", 22, "142535f8250223ea0e8b80edd60900bd"),
            ("da5a16cf1ad6a1fc", 11, "89d185b425a414aca6485866b16a6733"),
            ("40b6d419a1f4586c", 6, "8fc0ac6ddf996edb3b0de84225034347"),
            ("0000000000000000", 0, "00000000000000000000000000000000"),
        ],
    ),
    "minhash-n": (
        "9bb11c4a553486ad",
        [
            ("146d3c50348762b2", 12, "41c2d669cb177a08"),
            ("c7ee7c43bae51427", 22, "03bdb22a45c5db50"),
            ("39a5a352e0bf45bd", 11, "bfc534405f141951"),
            ("dd46bf4ffc199f0a", 7, "cbe8b0ef7f252444"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "window-cyclic": (
        "41272efaa4e1af8e",
        [
            ("2fc9355fa29c23b2", 7, "f4fd55aa6a81ed35"),
            ("503739b40d5e15c1", 16, "576333a450c26f05"),
            ("da5a16cf1ad6a1fc", 11, "d45f6c2f96e1a474"),
            ("bfb8a6f24ec16f08", 5, "9224510004ce4208"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "default": (
        "050ac9bb354935ad",
        [
            ("0eec3c51f95d454f", 9, "c4edecce691e17b5"),
            ("ae99fb8232ef3f06", 16, "a8c92d3e031d173c"),
            ("ff6eb66aaaa2c050", 9, "842755f0b0de80b9"),
            ("c1dadb87dba2a85d", 6, "5d2f80f329d3320c"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "words-32-bits": (
        "23226d46c4cf06f0",
        [
            ("0eec3c51f95d454f", 9, "64b2ab80"),
            ("ae99fb8232ef3f06", 16, "b95cb1fa"),
            ("ff6eb66aaaa2c050", 9, "24ca8434"),
            ("c1dadb87dba2a85d", 6, "48b3c548"),
            ("0000000000000000", 0, "00000000"),
        ],
    ),
    "characters-128-bits": (
        "7f199cb005f41c09",
        [
            ("6fa4ce2bab014b13", 50, "8d8b266302d8a182b807d2903b03163d"),
            ("fc6ca65aa7f0f8ad", 86, "a36d252f727c91a41bbb45354c83f8b9"),
            ("5060b7186973ad9b", 46, "06f8d7adc8ae86521bf9103dce8a2051"),
            ("c8a0c3bbf8b73b66", 23, "1e280e2da07012c222e24002b10f2c20"),
            ("f402c55ac5dec98f", 0, "00000000000000000000000000000000"),
        ],
    ),
    "minhash": (
        "1ea443dd59495d67",
        [
            ("d614460d59a60fac", 25, "10cb4c33d539729d"),
            ("1481da275dba5237", 39, "0a51d13cd880a018"),
            ("3a773761229c2171", 27, "006479377efd5ffa"),
            ("6c020a4322ea1cd9", 10, "15d797f0e1e689c1"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
    "masked-and-weighted": (
        "516ecbeb15566d1b",
        [
            ("20770cb74e9ad9ac", 6, "d5bd0cde2957bf46"),
            ("2dd6698181ca0bd0", 5, "4590a45f52c0aa90"),
            ("36bb07679b6404aa", 9, "84e454a3f85ef811"),
            ("63f2ebf571bab800", 6, "0821204109c10208"),
            ("0000000000000000", 0, "0000000000000000"),
        ],
    ),
}


def recipe_of(name: str) -> Recipe:
    return replace(Recipe(), **BUILT[name]) if name in BUILT else load_recipe(name)


def test_every_shipped_recipe_has_golden_numbers() -> None:
    assert {*shipped(), *BUILT} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_digests_stay_what_they_are(name: str) -> None:
    assert GOLDEN[name][0] == recipe_of(name).digest


def kernels() -> list[tuple[str, str]]:
    """(recipe, kernel) of each pair there is."""
    natively = [(name, "native") for name in GOLDEN if is_native(recipe_of(name))]
    return natively + [(name, "reference") for name in GOLDEN]


@pytest.mark.parametrize(("name", "kernel"), kernels())
def test_fingerprints_stay_what_they_are(name: str, kernel: str) -> None:
    recipe = recipe_of(name)
    fingerprinter = Fingerprinter(recipe)
    fingerprinter._kernel = (
        ReferenceKernel(recipe) if kernel == "reference" else native_module().Kernel(recipe)
    )
    documents = [{"message": e.decode("utf-8", "replace"), "size": len(e)} for e in EVENTS]

    numbers = fingerprinter.fingerprints(fingerprinter.prepare(EVENTS, documents), full=True)

    digits = -(-recipe.fingerprint.width // 4)
    assert GOLDEN[name][1] == [
        (f"{exact:016x}", words, f"{numbers.fingerprint(index):0{digits}x}")
        for index, (exact, words) in enumerate(zip(numbers.exact, numbers.words, strict=True))
    ]
