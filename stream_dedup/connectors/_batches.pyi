from collections.abc import Sequence

from stream_dedup.connectors.base import Output

def pack(outputs: Sequence[Output], limit: int) -> tuple[bytearray, int, int, int]: ...
