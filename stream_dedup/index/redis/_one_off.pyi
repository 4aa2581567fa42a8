from collections.abc import Sequence

from stream_dedup.index.redis.one_off import Row

def pack_patterns(rows: Sequence[Row], shift: int) -> bytes: ...
