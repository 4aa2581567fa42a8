"""Notices patterns that are new, spike, or have vanished, from their counts over time.

Problem: of many thousand patterns, each with a rhythm of its own, say at once which one has begun,
which comes much more often than it ever did, and which steady one has stopped; with a few numbers
a pattern, and hardly ever for nothing: each minute has as many tests as there are patterns.

Idea. Time is cut into bins (minutes). Of a pattern's counts x in the bins are kept

- S = Σ x·d^age, Q = Σ x²·d^age and W = Σ d^age over the bins since its first event, empty ones
  included. An hour ago counts half. mean = S / W, variance = Q / W - mean², and the dispersion
  φ = max(1, variance / mean) says how much more unevenly than Poisson the events come;
- the *record*: the largest x, which halves in a day; and the longest silence, in the same way.

**Spike**: the bin's count x so far passes all of these, once:

1. it is at least 10, and 3 times the mean;
2. the Chernoff bound of a Poisson tail, divided by the dispersion, says that it is unlikely:
   (x·ln(x / mean) - x + mean) / φ ≥ 10;
3. it is above 2·(1 + 4 / n) times the record, where n bins had events so far. Lines of a log come
   in groups that no rate describes: a dump of a configuration at each start is not a spike, however
   long nothing was started.

A pattern is 15 bins old before it can spike. A bin that spiked counts as √(x · record) afterwards:
the next spike of the same size is still one, but what comes every hour is soon usual, and so is a
rate that stays high. A spike that goes on is one spike, until ten bins in a row were below the
limits.

**Vanished**: a pattern that is at least 60 bins old, and was there in 20 of them, is silent for 10
bins, for 3 times its longest silence, and for so long that 20·φ events are missing.

Time is that of the events. Counts of bins that are over already arrived late, say of a partition
that catches up; they are not a spike, and are left out.

Memory: some 600 bytes a pattern, at most `max_patterns`; the one that was not seen for longest is
forgotten, and would be new again.

Example: 4, 6, 5, 5, … events a minute: mean 5, φ = 1, record 6. After an hour, a
minute with 40 events is above 10, 15 and 12.8, and 40·ln(8) - 35 = 48 ≥ 10: a spike. One with 14:
14·ln(2.8) - 9 = 5.4, none.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from stream_dedup.clock import US_PER_S

HALF_LIFE_BINS = 60
"""After so many bins, a count has half its weight in the mean."""

RECORD_HALF_LIFE_BINS = 24 * 60
"""After so many bins, the record and the longest silence are half as large."""

LEAST_COUNT = 10
LEAST_FACTOR = 3.0
LEAST_RECORDS = 2.0
UNSURE_BINS = 4
"""The record of n bins may be too low by 1 + 4 / n."""

UNLIKELY = 10.0
"""-ln of the probability of a spike by chance, if the rate is as it was."""

MISSING = 20.0
"""Events that a silence must lack."""

SPIKE_AGE_BINS = 15
CALM_BINS = 10
VANISHED_AGE_BINS = 60
VANISHED_ACTIVE_BINS = 20
VANISHED_SILENCES = 3.0

_DECAY = 0.5 ** (1 / HALF_LIFE_BINS)
_RECORD_DECAY = 0.5 ** (1 / RECORD_HALF_LIFE_BINS)
_NEVER = 1 << 62
_LN_10 = math.log(10)


class Change(StrEnum):
    """What happened to a pattern."""

    NEW = "new"
    SPIKE = "spike"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class PatternEvent:
    """Something that happened to a pattern.

    Attributes:
        change: what.
        pattern: its id.
        time_us: when: of the event or the bin that showed it.
        count: events in that bin.
        expected: events expected in a bin: the mean before.
        last_us: when the pattern was last seen.
        bin: number of the bin that showed it; of a silence the last one with an event.
        log10_p: logarithm of an upper bound of the probability by chance; 0 if it is new.
    """

    change: Change
    pattern: int
    time_us: int
    count: int
    expected: float
    last_us: int
    bin: int
    log10_p: float = 0.0


class Rate(msgspec.Struct, array_like=True):
    """What is kept of a pattern's counts; may be stored.

    Attributes:
        first_bin: of its first event.
        bin: the latest with an event; `count` is of this one, all else of those before.
        last_us: its latest event.
        active: bins with events.
        record, silence: see above.
        spiked: whether the bin did.
        calm_bin: until then a spike goes on.
        deadline_bin: when it has vanished if it stays silent.
    """

    first_bin: int
    bin: int
    last_us: int
    count: int = 0
    active: int = 0
    sum: float = 0.0
    squares: float = 0.0
    weight: float = 0.0
    record: float = 0.0
    silence: float = 0.0
    spiked: bool = False
    calm_bin: int = 0
    deadline_bin: int = _NEVER

    @property
    def mean(self) -> float:
        return self.sum / self.weight if self.weight else 0.0

    @property
    def dispersion(self) -> float:
        mean = self.mean
        return max(1.0, self.squares / self.weight / mean - mean) if mean else 1.0

    def enter(self, number: int) -> None:
        """Enter a later bin: the count so far and the empty bins between become history."""
        counted = float(self.count)
        if self.spiked:
            counted = math.sqrt(counted * max(1.0, self.record))
        self.sum += counted
        self.squares += counted * counted
        self.weight += 1.0
        self.record = max(self.record, counted)
        bins = number - self.bin
        decay = _DECAY**bins
        self.sum *= decay
        self.squares *= decay
        # This bin, which is one old by then, and those between, without events.
        self.weight = self.weight * decay + (_DECAY - decay) / (1 - _DECAY)
        fade = _RECORD_DECAY**bins
        self.record *= fade
        self.silence = max(self.silence * fade, float(bins))
        self.bin, self.count, self.spiked = number, 0, False

    def spike_mean(self) -> float:
        """The mean that the current bin's count is compared with, at least half an event in all."""
        return max(self.mean, 0.5 / (self.weight + 1.0))

    def surprise(self) -> float:
        """-ln of a bound of the probability of so large a count by chance, if above the mean."""
        count, mean = self.count, self.spike_mean()
        return (count * math.log(count / mean) - count + mean) / self.dispersion

    def is_spike(self) -> bool:
        """Whether the current bin's count is far above all before."""
        count, mean = self.count, self.spike_mean()
        return (
            count >= LEAST_COUNT
            and count >= LEAST_FACTOR * mean
            and count > LEAST_RECORDS * (1 + UNSURE_BINS / self.active) * self.record
            and self.bin - self.first_bin >= SPIKE_AGE_BINS
            and self.surprise() >= UNLIKELY
        )

    def set_deadline(self) -> None:
        """Set when it has vanished, unless it is seen again."""
        steady = (
            self.bin - self.first_bin >= VANISHED_AGE_BINS and self.active >= VANISHED_ACTIVE_BINS
        )
        if not steady:
            return
        missing = MISSING * self.dispersion / max(self.mean, 1e-9)
        silent = max(float(CALM_BINS), VANISHED_SILENCES * self.silence, missing)
        self.deadline_bin = self.bin + math.ceil(silent)


class Detector:
    """Notices what happens to patterns, from how often each was seen when.

    Args:
        bin_us: length of a bin; no shorter than counts are reported.
        max_patterns: patterns that are remembered.

    Attributes:
        bin_us: as given.
    """

    def __init__(self, bin_us: int = 60 * US_PER_S, max_patterns: int = 100_000) -> None:
        if bin_us <= 0:
            raise ValueError(f"bin_us is {bin_us}; give a duration above 0")
        if max_patterns < 1:
            raise ValueError(f"max_patterns is {max_patterns}; give 1 or more")
        self.bin_us = bin_us
        self._max_patterns = max_patterns
        # By when they were last given, the one longest ago first.
        self._rates: OrderedDict[int, Rate] = OrderedDict()
        self._swept_bin = -_NEVER

    def __len__(self) -> int:
        return len(self._rates)

    def observe(self, pattern: int, time_us: int, count: int) -> PatternEvent | None:
        """Count events of a pattern; return what that shows, if anything.

        Args:
            pattern: its id.
            time_us: of the latest of these events.
            count: how many; at least 1.
        """
        number = time_us // self.bin_us
        rate = self._rates.get(pattern)
        if rate is None:
            self._rates[pattern] = Rate(number, number, time_us, count, 1)
            if len(self._rates) > self._max_patterns:
                self._rates.popitem(last=False)
            return PatternEvent(Change.NEW, pattern, time_us, count, 0.0, time_us, number)
        self._rates.move_to_end(pattern)
        if number < rate.bin:
            return None
        rate.last_us = max(rate.last_us, time_us)
        if number > rate.bin:
            rate.enter(number)
            rate.active += 1
            rate.deadline_bin = _NEVER
            rate.set_deadline()
        rate.count += count
        if not rate.is_spike():
            return None
        rate.spiked = True
        goes_on = number <= rate.calm_bin
        rate.calm_bin = number + CALM_BINS
        if goes_on:
            return None
        log10_p = -rate.surprise() / _LN_10
        return PatternEvent(
            Change.SPIKE, pattern, time_us, rate.count, rate.mean, rate.last_us, number, log10_p
        )

    def advance(self, time_us: int) -> list[PatternEvent]:
        """Return the patterns that have vanished by this time of the stream.

        Looks at all patterns, but only where the time has entered another bin.
        """
        number = time_us // self.bin_us
        if number <= self._swept_bin:
            return []
        self._swept_bin = number
        found = []
        for pattern, rate in self._rates.items():
            if rate.deadline_bin <= number:
                rate.deadline_bin = _NEVER
                # The probability of no event, exp(-missing), by the dispersion as above.
                log10_p = -rate.mean * (number - rate.bin) / rate.dispersion / _LN_10
                found.append(
                    PatternEvent(
                        *(Change.VANISHED, pattern, time_us, 0, rate.mean, rate.last_us, rate.bin),
                        log10_p,
                    )
                )
        return found

    def rate(self, pattern: int) -> Rate | None:
        """Return what is kept of a pattern's counts, to be stored."""
        return self._rates.get(pattern)

    def restore(self, pattern: int, rate: Rate) -> None:
        """Go on with counts that were stored; the bins must be as long."""
        self._rates[pattern] = rate

    def deadline_us(self, pattern: int) -> int | None:
        """Return from which time of the stream on a silent pattern has vanished; None for never."""
        rate = self._rates.get(pattern)
        if rate is None or rate.deadline_bin >= _NEVER:
            return None
        return rate.deadline_bin * self.bin_us

    def forget(self, pattern: int) -> None:
        """Forget a pattern, because it is part of another one now."""
        self._rates.pop(pattern, None)
