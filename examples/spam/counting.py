"""What is counted of a campaign, each in bounded memory: senders, growth, and values of slots."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator

from messages import Message, printable

Hash = Callable[[bytes], int]
"""A keyed hash of 64 bits."""

SENDERS = 128
"""Hashes kept: the number of senders is exact below it, and has a standard error of 9 % above."""
PARTS = 10
"""Parts of a window, in which growth is counted."""
VALUES = 20
"""Values of a slot that are kept, the first ones; what comes of others is counted together."""
MAX_VALUE = 100
"""Characters kept of a value."""
SLOTS = ("links", "hosts", "amounts", "names")
WORDS = 60
"""Words of a text in which names are looked for."""

_LINK = re.compile(r"(?:https?://|www\.)[^\s<>\"]{1,200}", re.IGNORECASE)
_HOST = re.compile(r"^https?://|[/?#].*$", re.IGNORECASE | re.DOTALL)
"""What is not the host of a link."""
_NUMBER = r"\d{1,12}(?:[.,]\d{1,3}){0,4}"
_AMOUNT = re.compile(rf"[$€£¥₹₽]\s?{_NUMBER}|{_NUMBER}\s?(?:[€£¥₹₽]|(?:USD|EUR|GBP|CHF)\b)")
_WORD = re.compile(r"\w+")


class Senders:
    """The number of different senders, by the least hashes of their names.

    The hashes of n names are spread evenly over 0 to 2⁶⁴. If the 128th least is x, there were some
    127 · 2⁶⁴ / x names (Bar-Yossef and others, "Counting distinct elements in a data stream",
    2002). The hashes are keyed, so nobody can choose names that count for more or for less.

    Args:
        keyed_hash: of a name.
    """

    def __init__(self, keyed_hash: Hash) -> None:
        self._hash = keyed_hash
        self._least: set[int] = set()
        self._heap: list[int] = []  # the same, negative: the greatest of them is first

    def add(self, sender: str) -> None:
        """Count a sender."""
        number = self._hash(sender.encode("utf-8", "replace"))
        if number in self._least:
            return
        if len(self._heap) < SENDERS:
            heapq.heappush(self._heap, -number)
            self._least.add(number)
        elif number < -self._heap[0]:
            self._least.discard(-heapq.heapreplace(self._heap, -number))
            self._least.add(number)

    @property
    def exact(self) -> bool:
        """Whether the number is not an estimate."""
        return len(self._heap) < SENDERS

    @property
    def count(self) -> int:
        """How many there are."""
        if self.exact:
            return len(self._heap)
        return max(SENDERS, round((SENDERS - 1) * 2**64 / -self._heap[0]))


class Growth:
    """Messages of a window and of the window before it, to a tenth of a window.

    Args:
        window_us: the window.
    """

    def __init__(self, window_us: int) -> None:
        self._part_us = max(1, window_us // PARTS)
        self._counts: dict[int, int] = {}

    def add(self, time_us: int) -> None:
        """Count a message."""
        part = time_us // self._part_us
        self._counts[part] = self._counts.get(part, 0) + 1
        if len(self._counts) > 2 * PARTS:
            del self._counts[min(self._counts)]

    def until(self, end_us: int) -> tuple[int, int]:
        """The messages of the window that ends now, and of the one before."""
        last = end_us // self._part_us
        now = sum(self._counts.get(last - back, 0) for back in range(PARTS))
        before = sum(self._counts.get(last - back, 0) for back in range(PARTS, 2 * PARTS))
        return now, before


class Slots:
    """The values that vary within a campaign: links and their hosts, amounts of money, and names.

    A name is a word with a capital letter between the same two words as another one in the first
    message.

    Args:
        first: the campaign's first message.
    """

    def __init__(self, first: Message) -> None:
        self._between = dict(_words_between(first.text))
        self._values: dict[str, dict[str, int]] = {slot: {} for slot in SLOTS}
        self._more = dict.fromkeys(self._values, 0)
        self._add_found(first.text)

    def add(self, text: str) -> None:
        """Count the values of a later message."""
        self._add_found(text)
        for around, word in _words_between(text):
            other = self._between.get(around, word)
            if word != other and word[0].isupper() and other[0].isupper():
                self._add("names", word)
                if not self._values["names"].get(other):
                    self._add("names", other)

    def _add_found(self, text: str) -> None:
        for link in _LINK.findall(text):
            self._add("links", link)
            self._add("hosts", _HOST.sub("", link).lower())
        for amount in _AMOUNT.findall(text):
            self._add("amounts", amount)

    def _add(self, slot: str, value: str) -> None:
        values = self._values[slot]
        value = printable(value, MAX_VALUE)
        if value in values or len(values) < VALUES:
            values[value] = values.get(value, 0) + 1
        else:
            self._more[slot] += 1

    def shaped(self) -> dict[str, dict[str, object]]:
        """The values of each slot with their counts, the most frequent first; and the rest."""
        return {
            slot: {
                "values": dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))),
                "more": self._more[slot],
            }
            for slot, values in self._values.items()
        }


def _words_between(text: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Each of a text's first words outside links, with the words before and after it."""
    found = _WORD.finditer(_LINK.sub(" ", text))
    words = [word[0] for _, word in zip(range(WORDS), found, strict=False)]
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        yield (before.lower(), after.lower()), word
