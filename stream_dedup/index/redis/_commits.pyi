from collections.abc import Iterable

from stream_dedup.index.base import ClusterDelta
from stream_dedup.model import Decision

def pack_decisions(decisions: list[Decision]) -> bytes: ...
def pack_deltas(
    deltas: Iterable[ClusterDelta], samples: int, max_bytes: int, owner: bytes
) -> tuple[bytes, list[bytes], list[bytes]]: ...
