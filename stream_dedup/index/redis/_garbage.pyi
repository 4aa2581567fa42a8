from collections.abc import Sequence

from stream_dedup.index.redis.garbage import Arrange, Call
from stream_dedup.index.redis.keys import NamespaceLayout, ShardKeys

def pack_garbage(
    pieces: Sequence[bytes],
    shard: ShardKeys,
    layout: NamespaceLayout,
    arrange: Arrange,
    call_work: int,
) -> list[Call]: ...
