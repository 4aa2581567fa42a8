from typing import Any

def look(
    document: dict[str, Any],
    roles: dict[str, int],
    most: tuple[int, ...],
    max_word: int,
    values: list[object],
    traces: list[tuple[str, object]],
    depth: int = 0,
) -> int: ...
