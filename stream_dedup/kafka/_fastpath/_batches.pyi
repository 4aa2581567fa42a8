from stream_dedup.io.base import Headers

FORMAT: int
HAS_CRC32C: bool

def crc32c(data: bytes | bytearray | memoryview) -> int: ...
def pack(
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
    all_headers: list[Headers],
    limit: int,
) -> tuple[bytearray, int, int, int]: ...

class Unpacker:
    def __init__(
        self,
        records: bytes | bytearray | memoryview,
        count: int,
        base_offset: int,
        base_ms: int,
        appended_ms: int | None = None,
    ) -> None: ...
    def take(
        self, most: int, wanted: int, most_bytes: int = ...
    ) -> (
        tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[Headers]] | None
    ): ...
