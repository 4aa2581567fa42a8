"""Lines that an attacker computed to be taken for a duplicate of another line.

They were made against exact hashes by MurmurHash3 with seed 0, of the tokens of the recipe
`logs-1`: its rounds can be undone, so two printable words give the rest of a line any hash that is
wanted. A minute of one core made the two at the end of `HIDDEN`.
"""

from __future__ import annotations

from stream_dedup.features.lines import LineReader
from stream_dedup.features.recipe import load_recipe
from stream_dedup.features.tokens import PLACEHOLDER
from stream_dedup.fingerprint.hashing import hash128, hash_sequence

KNOWN = (
    b'10.0.0.9 - - [27/Jul/2026:10:00:01 +0000] "GET /healthz HTTP/1.1" 200 2 "-" "kube-probe/1.29"'
)
"""A line that the log is full of."""

HIDDEN = (
    b'203.0.113.66 - - [27/Jul/2026:10:00:07 +0000] "POST /admin/users HTTP/1.1" 201 512 "-" '
    b'"sqlmap adds user mallory to group wheel  QnDVdPNxW#TjKYV^ -+gRD?~JKg`XOgCO"'
)
"""The line to be hidden behind it."""

ANY_SEED = (
    (
        b'sqld[77]: client says "union+select+password+from+users'
        b' DroP+tAble+AUdit_Log+cascaDe+NoW gRAnT+All+PRiVILEGes+to+malLOry_"'
    ),
    bytes.fromhex(
        "73716c645b37375d3a20636c69656e7420736179732022d50e6791129fc82d2d72da21a86df2a873776f72e7"
        "dd97ef6f6d2b757365727320e4d1712e8700ec992d72a2eed161faa95f4c6f67ae1593f0636144652b4e6f57"
        "2007b2434cb61c4f9e2a4bb7fe1984c5ab45476573ae26a1a86d616c4c4f72795f22"
    ),
)
"""Two lines whose words of 32 bytes have equal hashes by MurmurHash3 under every seed."""


def without_key(line: bytes, seed: int = 0) -> int:
    """The exact hash of a line if it is computed by MurmurHash3, without a key."""
    tokens = LineReader(load_recipe("logs-1")).read(line).tokens
    return hash_sequence(
        [hash128(PLACEHOLDER if token.variable else token.text, seed)[0] for token in tokens], seed
    )[0]
