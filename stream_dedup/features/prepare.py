"""What is done to an event before the kernel sees it: fields, Unicode, case, masks.

Most log recipes need none of it: then texts go to the kernel untouched.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import mmh3

from stream_dedup.features.fields import parse_path, select
from stream_dedup.features.masks import Masker
from stream_dedup.features.recipe import Recipe

_NFKC_CHARACTERS = 1024


class Preparer:
    """Prepares events as a recipe says."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._masker = Masker(recipe.masks) if recipe.masks else None
        self._spaces = recipe.features.extractor == "characters"
        self._fields = [(parse_path(f.path), f.weight) for f in recipe.input.fields]
        self._salts: dict[str, int] = {}
        plain = self._masker is None and not self._spaces
        self._lower_only = plain and recipe.text.case == "lower"

    @property
    def takes_fields(self) -> bool:
        """Whether the recipe looks at fields of a decoded JSON event."""
        return bool(self._fields)

    @property
    def changes_text(self) -> bool:
        """Whether `text` may give anything but what it is given."""
        text = self._recipe.text
        return (
            self._spaces
            or self._masker is not None
            or (text.case, text.unicode)
            != (
                "keep",
                "keep",
            )
        )

    def texts(self, values: Sequence[bytes]) -> list[bytes]:
        """`text` of many."""
        if self._lower_only:  # the common case, without a call an event
            text = self.text
            return [value.lower() if value.isascii() else text(value) for value in values]
        return list(map(self.text, values))

    def text(self, value: bytes) -> bytes:
        """The text as the features are taken from it; any bytes will do.

        Of a text longer than ``max_bytes`` the rest is left as it is, as the kernel takes it.
        """
        limit = self._recipe.input.max_bytes
        if len(value) > limit:
            return self.text(value[:limit]) + value[limit:]
        text = self._recipe.text
        if not value.isascii() and (text.unicode == "nfkc" or text.case == "lower"):
            decoded = value.decode("utf-8", "surrogateescape")
            if text.unicode == "nfkc":
                # In pieces: sorting one long run of combining marks costs its square.
                decoded = "".join(
                    unicodedata.normalize("NFKC", decoded[start : start + _NFKC_CHARACTERS])
                    for start in range(0, len(decoded), _NFKC_CHARACTERS)
                )
            if text.case == "lower":
                decoded = decoded.lower()
            value = decoded.encode("utf-8", "surrogateescape")
        elif text.case == "lower":
            value = value.lower()
        if self._masker is not None:
            value = self._masker.substitute(value)
        return b" ".join(value.split()) if self._spaces else value

    def parts(self, document: object) -> Iterator[tuple[str, bytes, int, int]]:
        """(name, prepared text, weight, salt) of the fields found in a decoded event."""
        for steps, weight in self._fields:
            for name, text in select(document, steps):
                yield name, self.text(text), weight, self._salt(name)

    def _salt(self, name: str) -> int:
        salt = self._salts.get(name)
        if salt is None:
            if len(self._salts) >= 10_000:  # names come from the events
                self._salts.clear()
            seed = self._recipe.fingerprint.seed
            data = name.encode("utf-8", "surrogatepass")
            salt = mmh3.hash64(data, seed, x64arch=True, signed=False)[1]
            self._salts[name] = salt
        return salt
