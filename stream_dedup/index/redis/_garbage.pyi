from collections.abc import Sequence

from stream_dedup.index.redis.garbage import Arrange, Call, Shape
from stream_dedup.index.redis.keys import ShardKeys

def pack_garbage(
    pieces: Sequence[bytes], shard: ShardKeys, shape: Shape, arrange: Arrange
) -> list[Call]: ...
