"""Golden numbers that no version may change: digests, exact hashes (key: zeros), fingerprints.

They stand in users' indexes. Where a change makes them differ on purpose, the digest's own version
("stream-dedup recipe 1") must change with them.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

import pytest

from stream_dedup.features.recipe import Recipe, load_recipe, replace, shipped
from stream_dedup.features.variants import LEVELS, OUTCOMES
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.kernel import Fingerprints, is_native
from stream_dedup.fingerprint.reference import ReferenceKernel
from stream_dedup.fingerprint.siphash import PUBLIC_KEY
from stream_dedup.native import extension

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
    "folded": {
        "text__fold": "look-alikes",
        "features__extractor": "characters",
        "features__ngram": 3,
    },
    "minhash": {
        "fingerprint__kind": "minhash",
        "fingerprint__least": 2,
        "match__k": 0,
        "features__extractor": "syllables",
    },
    "bands-of-words": {
        "fingerprint__kind": "bands",
        "fingerprint__seed": 7,
        "features__ngram": 2,
        "match__jaccard": 0.5,
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
    "documents": (
        "2da7c5b50eb8e37e",
        [
            ("625e5feb0370c715", 28, "9fab55175fd49d22"),
            ("94eea0fb02cf598d", 34, "75aaa85eddf5de17"),
            ("68dcafd773dd8a0f", 18, "aedfc4bc7021c3d3"),
            ("a9c7e7ec5ff76d02", 10, "d43d4013b1918ec4"),
            ("d1fba762150c532c", 0, "804294af76bbb30b"),
        ],
    ),
    "records": (
        "c82698d8e284b361",
        [
            ("d0a7f23b27ad430f", 66, "6d6ce95b0502c023"),
            ("0f6010939feb0005", 108, "89008b4f838ae00f"),
            ("053247eeefb803be", 59, "64ea9591ec4505c5"),
            ("f4e422bc6918b589", 31, "01aeac907facd7ec"),
            ("d1fba762150c532c", 0, "804294af76bbb30b"),
        ],
    ),
    "messages": (
        "61cb4efb0fdd7f83",
        [
            ("625e5feb0370c715", 109, "4acdc07b3bdc03c5"),
            ("94eea0fb02cf598d", 125, "3a690cceb1369514"),
            ("68dcafd773dd8a0f", 62, "b4ccf1533bb9c1c3"),
            ("a9c7e7ec5ff76d02", 49, "8e71af31a74cb25f"),
            ("d1fba762150c532c", 0, "804294af76bbb30b"),
        ],
    ),
    "text": (
        "5d2946e4eb34462c",
        [
            ("625e5feb0370c715", 32, "1dce6c74aceb144a"),
            ("94eea0fb02cf598d", 38, "a958a8532888276c"),
            ("68dcafd773dd8a0f", 22, "9aa13482b2a281ba"),
            ("a9c7e7ec5ff76d02", 14, "5e1744dcd642edac"),
            ("d1fba762150c532c", 0, "804294af76bbb30b"),
        ],
    ),
    "bands-of-words": (
        "47abe58335d237bf",
        [
            ("9489745ff59821a1", 9, "cef4714b6fcff998"),
            ("17edf5622030cc24", 16, "5d669f82807e90f2"),
            ("cc45a917f707e58c", 9, "12a0ea171fbad932"),
            ("e3f06786b371d4d9", 6, "9db8e5de49719dc1"),
            ("d1fba762150c532c", 0, "804294af76bbb30b"),
        ],
    ),
    "json": (
        "e0592569b9544486",
        [
            ("68decbcdf23eaa91", 6, "e18c5900d6a2b842"),
            ("d05c3839c6017aeb", 5, "c5d0a9a03e83f936"),
            ("d111e75f606c760b", 8, "a106c0a68e42233a"),
            ("58754f95dd85081b", 5, "6c8e4db39257b99c"),
            ("0666f05750369e3e", 0, "a49ae922d7d211f8"),
        ],
    ),
    "json-1": (
        "b9abaca96a6793bb",
        [
            ("d12e339a26a1fde4", 6, "e18c5900d6a2b842"),
            ("db4197730b3759fe", 5, "c5d0a9a03e83f936"),
            ("d111e75f606c760b", 8, "a106c0a68e42233a"),
            ("4ad0937d9c5c3ff7", 5, "6c8e4db39257b99c"),
            ("0666f05750369e3e", 0, "a49ae922d7d211f8"),
        ],
    ),
    "logs": (
        "9565dbca9c2d1b29",
        [
            ("4fb8d34cf2553b7a", 6, "dc6480dced371385"),
            ("ec1dc7e45ded6cb6", 5, "dc7493d98db753a5"),
            ("da498f173d02a8c6", 7, "800711e0359680a0"),
            ("41c47fa400ecb137", 5, "488fb08189c3021c"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "logs-1": (
        "e4bab17433e60216",
        [
            ("5fd52cc4c3a63e1b", 6, "dcedc8deed3f17c5"),
            ("4028a3e22d84cd0b", 5, "e040349a011352b4"),
            ("17fb1ac4024355c2", 8, "942755f0b5dec0b9"),
            ("23a751d63e06a33d", 5, "482000c109c10204"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "text-1": (
        "e9fe5a9426172f96",
        [
            ("b634055bbce2c754", 53, "c8a372e6799b131a"),
            ("1872afef934aca99", 123, "c82ef2de22dbf328"),
            ("a19da7b15bc2eda9", 34, "25a9d75046667421"),
            ("5f0d414caa2935a0", 30, "020f6a64c5837610"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "words": (
        "f76b7a76d51f40be",
        [
            ("3c69ccc28d8bce30", 12, "ccbccecc48171785"),
            ("3a8f0441129084ef", 22, "21cc19fe371b2ea0"),
            ("5e3d2ba94fe771ce", 11, "04d65283f45ada91"),
            ("b1340a3e944b957f", 7, "002e3241a9c3020c"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "java32": (
        "ae503fdac795d955",
        [
            ("9489745ff59821a1", 9, "00318888"),
            ("784376570ce575e5", 13, "00010a6f"),
            ("ec7fdf199497c1a6", 8, "00000c65"),
            ("e3f06786b371d4d9", 6, "0001e0f1"),
            ("353ec76a71e99680", 1, "00000000"),
        ],
    ),
    "letters5": (
        "01311830fc858e7c",
        [
            ("e07bd7231d72e2f1", 53, "00"),
            ("6fa13e7ad23ab287", 89, "00"),
            ("134f1eeddc909b5a", 49, "00"),
            ("0d5a9026ea9a1cd2", 26, "04"),
            ("d1fba762150c532c", 0, "1f"),
        ],
    ),
    "md5-128": (
        "9cefd0499daf6c2a",
        [
            ("36fe2293446e4186", 12, "d78d40ca07a1445f664bcbdcc8c24440"),
            ("c4e0ead1eca0c78c", 22, "142535f8250223ea0e8b80edd60900bd"),
            ("34e129aeb84b325d", 11, "89d185b425a414aca6485866b16a6733"),
            ("653b27acbe6f4191", 6, "8fc0ac6ddf996edb3b0de84225034347"),
            ("d1fba762150c532c", 0, "00000000000000000000000000000000"),
        ],
    ),
    "minhash-n": (
        "9bb11c4a553486ad",
        [
            ("3c69ccc28d8bce30", 12, "41c2d669cb177a08"),
            ("3a8f0441129084ef", 22, "03bdb22a45c5db50"),
            ("5e3d2ba94fe771ce", 11, "bfc534405f141951"),
            ("b1340a3e944b957f", 7, "cbe8b0ef7f252444"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "window-cyclic": (
        "41272efaa4e1af8e",
        [
            ("686a7e5147995d43", 7, "f4fd55aa6a81ed35"),
            ("fe39f978b25fd7be", 16, "576333a450c26f05"),
            ("34e129aeb84b325d", 11, "d45f6c2f96e1a474"),
            ("b0d14454a0e37608", 5, "9224510004ce4208"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "default": (
        "050ac9bb354935ad",
        [
            ("9489745ff59821a1", 9, "c4edecce691e17b5"),
            ("17edf5622030cc24", 16, "a8c92d3e031d173c"),
            ("cc45a917f707e58c", 9, "842755f0b0de80b9"),
            ("e3f06786b371d4d9", 6, "5d2f80f329d3320c"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "words-32-bits": (
        "23226d46c4cf06f0",
        [
            ("9489745ff59821a1", 9, "64b2ab80"),
            ("17edf5622030cc24", 16, "b95cb1fa"),
            ("cc45a917f707e58c", 9, "24ca8434"),
            ("e3f06786b371d4d9", 6, "48b3c548"),
            ("d1fba762150c532c", 0, "00000000"),
        ],
    ),
    "characters-128-bits": (
        "7f199cb005f41c09",
        [
            ("e07bd7231d72e2f1", 50, "8d8b266302d8a182b807d2903b03163d"),
            ("6fa13e7ad23ab287", 86, "a36d252f727c91a41bbb45354c83f8b9"),
            ("134f1eeddc909b5a", 46, "06f8d7adc8ae86521bf9103dce8a2051"),
            ("0d5a9026ea9a1cd2", 23, "1e280e2da07012c222e24002b10f2c20"),
            ("d1fba762150c532c", 0, "00000000000000000000000000000000"),
        ],
    ),
    "folded": (
        "0505f27428cdd3cb",
        [
            ("625e5feb0370c715", 33, "68cb275635972a1b"),
            ("94eea0fb02cf598d", 39, "7d4422db5a87abf9"),
            ("68dcafd773dd8a0f", 23, "131aa71d4c1e5ecd"),
            ("a9c7e7ec5ff76d02", 15, "6f2f69f76bd3a31d"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "minhash": (
        "1ea443dd59495d67",
        [
            ("6a4262158a9e8052", 25, "10cb4c33d539729d"),
            ("73a0a79cd5f7fb75", 39, "0a51d13cd880a018"),
            ("362c474a89b8584a", 27, "006479377efd5ffa"),
            ("99006f32120970bf", 10, "15d797f0e1e689c1"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
    "masked-and-weighted": (
        "516ecbeb15566d1b",
        [
            ("77fff6edae43f2c6", 6, "d5bd0cde2957bf46"),
            ("89f3dd230d8c4e7b", 5, "4590a45f52c0aa90"),
            ("7837ed82f5bd5908", 9, "84e454a3f85ef811"),
            ("63fc954097e9c5b5", 6, "0821204109c10208"),
            ("d1fba762150c532c", 0, "0000000000000000"),
        ],
    ),
}


def recipe_of(name: str) -> Recipe:
    return replace(Recipe(), **BUILT[name]) if name in BUILT else load_recipe(name)


def test_every_shipped_recipe_has_golden_numbers() -> None:
    assert {*shipped(), *BUILT} == set(GOLDEN)


def test_lists_that_recipes_name_stay_what_they_are() -> None:
    digests = [
        hashlib.sha256(" ".join(sorted(words)).encode()).hexdigest()[:16]
        for words in (OUTCOMES, LEVELS)
    ]
    assert digests == ["f1cfbd2bdf48f247", "d3be9732d0c552c8"]


@pytest.mark.parametrize("name", GOLDEN)
def test_digests_stay_what_they_are(name: str) -> None:
    assert GOLDEN[name][0] == recipe_of(name).digest


def shown(numbers: Fingerprints, index: int, recipe: Recipe) -> str:
    """A fingerprint in hexadecimal; of bands, a digest of the keys and the sketch."""
    if recipe.fingerprint.kind != "bands":
        digits = -(-recipe.fingerprint.width // 4)
        return f"{numbers.fingerprint(index):0{digits}x}"
    sketch = b"".join(one.to_bytes(2, "big") for one in array("H", numbers.sketches[index]))
    return hashlib.sha256(numbers.keys(index) + sketch).hexdigest()[:16]


def kernels() -> list[tuple[str, str]]:
    """(recipe, kernel) of each pair there is."""
    natively = [(name, "native") for name in GOLDEN if is_native(recipe_of(name))]
    return natively + [(name, "reference") for name in GOLDEN]


@pytest.mark.parametrize(("name", "kernel"), kernels())
def test_fingerprints_stay_what_they_are(name: str, kernel: str) -> None:
    recipe = recipe_of(name)
    fingerprinter = Fingerprinter(recipe, PUBLIC_KEY)
    fingerprinter._kernel = (
        ReferenceKernel(recipe, PUBLIC_KEY)
        if kernel == "reference"
        else extension("fingerprint._kernel").Kernel(recipe, PUBLIC_KEY)
    )
    documents = [{"message": e.decode("utf-8", "replace"), "size": len(e)} for e in EVENTS]

    numbers = fingerprinter.fingerprints(fingerprinter.prepare(EVENTS, documents), full=True)

    assert GOLDEN[name][1] == [
        (f"{exact:016x}", words, shown(numbers, index, recipe))
        for index, (exact, words) in enumerate(zip(numbers.exact, numbers.words, strict=True))
    ]
