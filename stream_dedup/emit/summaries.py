"""Summaries of clusters as output: as JSON, as a Kafka record, and as text.

In text a summary reads::

    … repeated 412× until 10:32:11 [5d41402abc4b2a76] (ERROR) ERROR connection from <ipv4> lost

The group and the variant are in parentheses. The count is of events that no earlier line has
shown or counted, so the events shown and the repeats
add up to the events read. A summary with nothing to add is not printed. If the cluster has merged
into another one::

    … [5d41402abc4b2a76] is now part of [7c9e6679f0c58a21] session closed for user <*>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

import msgspec

from stream_dedup.clock import US_PER_MS, US_PER_S
from stream_dedup.features.patterns import readable
from stream_dedup.model import SlotValues, Summary, Variables

MARK = "…"
"""What a summary in text begins with."""

MAX_VALUE = 60
"""Characters shown of a value of a group."""

LEAST_SAMPLED = 2
"""Values of fewer events are not listed in text."""

DECIMALS = 4
"""Of shares of values, in JSON."""

SHORTENED = 128
"""Bytes or characters of each text that a shortened summary keeps."""


def summary_json(summary: Summary, namespace: str) -> bytes:
    """A summary as one JSON line."""
    fields: dict[str, object] = {
        "type": "summary",
        "namespace": namespace,
        "cluster": summary.cluster_hex,
        "template": summary.template_hex,
        "variant": summary.variant,
        "revision": summary.revision,
        "final": summary.final,
        "closing": summary.closing and summary.closing.value,
        "count": summary.count,
        "new_count": summary.new_count,
        "first_time": iso_time(summary.first_time_us),
        "last_time": iso_time(summary.last_time_us),
        "pattern": summary.pattern,
        "representative": summary.representative.decode("utf-8", "backslashreplace"),
        "samples": [s.decode("utf-8", "backslashreplace") for s in summary.samples],
        "group": msgspec.Raw(summary.group.encode() if summary.group else b"{}"),
        "position": {
            "source": summary.position.source.encode("utf-8", "replace").decode(),
            "partition": summary.position.partition,
            "offset": summary.position.offset,
        },
    }
    if summary.name:
        fields["name"] = summary.name
    if summary.variables is not None:
        fields["variables"] = variables_object(summary.variables)
    if summary.merged_into is not None:
        fields["merged_into"] = f"{summary.merged_into:016x}"
    if summary.merged:
        fields["merged"] = [
            {"cluster": f"{cluster:016x}", "count": count} for cluster, count in summary.merged
        ]
    return msgspec.json.encode(fields) + b"\n"


def pattern_fields(summary: Summary) -> dict[str, object]:
    """Return what names the cluster and the pattern of a summary in a line of JSON."""
    return {
        "cluster": summary.cluster_hex,
        "template": summary.template_hex,
        "variant": summary.variant,
        "group": msgspec.Raw(summary.group.encode() if summary.group else b"{}"),
        "pattern": summary.pattern,
        "representative": summary.representative.decode("utf-8", "backslashreplace"),
    }


def variables_object(variables: Variables) -> dict[str, object]:
    """The values of a cluster's variables, in the form of JSON."""
    return {
        "sampled": variables.sampled,
        "error": round(variables.error, DECIMALS),
        "slots": [
            {
                "slot": slot.slot,
                "distinct": slot.distinct,
                "values": [
                    {"value": value, "share": round(share, DECIMALS)}
                    for value, share in slot.values
                ],
            }
            for slot in variables.slots
        ],
    }


def variables_lines(variables: Variables | None) -> list[str]:
    """The values that repeat, a line for each place of the pattern but its time.

    >>> from stream_dedup.model import SlotValues
    >>> slots = (SlotValues("<*>", (("ann", 0.5), ("bob", 0.25)), 3), SlotValues("<ipv4>", (), 4))
    >>> variables_lines(Variables(4, 0.49, slots))
    ['<*>: ann 50%, bob 25%, 1 more (±49%)']
    """
    if variables is None or variables.sampled < LEAST_SAMPLED:
        return []
    error = f" (±{variables.error:.0%})" if variables.error else ""
    lines = []
    for slot in variables.slots:
        if slot.distinct == variables.sampled or slot.slot == "<timestamp>":
            continue
        lines.append(f"{slot.slot}: {shares_text(slot)}{error}")
    return lines


def shares_text(slot: SlotValues) -> str:
    """Return the most frequent values of a slot with their shares, and how many more it has."""
    shown = [f"{value or 'nothing'} {share:.0%}" for value, share in slot.values]
    if slot.distinct > len(shown):
        shown.append(f"{slot.distinct - len(shown)} more")
    return ", ".join(shown)


def summary_record(summary: Summary, namespace: str) -> tuple[bytes, bytes, int]:
    """A summary's key, value, and time in milliseconds.

    The key is the cluster's id, so a compacted topic keeps each cluster's latest revision.
    """
    return (
        summary.cluster_hex.encode(),
        summary_json(summary, namespace).rstrip(b"\n"),
        summary.last_time_us // US_PER_MS,
    )


def shortened_summary(summary: Summary) -> Summary:
    """A summary without samples, and with the beginning of its texts, for a topic of small records.

    Its counts are unchanged.
    """
    return replace(
        summary,
        samples=(),
        variables=None,
        representative=summary.representative[:SHORTENED],
        pattern=summary.pattern[:SHORTENED],
        group="" if len(summary.group) > SHORTENED else summary.group,
    )


def repeats(summary: Summary) -> int:
    """Events that were neither shown nor counted before; a cluster's first event was shown."""
    return summary.new_count - (summary.count == summary.new_count)


def summary_text(summary: Summary, until: str, mark: str = MARK) -> bytes:
    """A summary as a line of text; empty when there is nothing to add.

    Args:
        summary: the summary, with its pattern.
        until: when, or where, the cluster was last seen.
        mark: what the line begins with.
    """
    parts = summary_parts(summary, until, mark)
    return f"{' '.join(parts)}\n".encode("utf-8", "backslashreplace") if parts else b""


def summary_parts(summary: Summary, until: str, mark: str) -> tuple[str, ...]:
    """The count, the place, and the pattern of `summary_text`; nothing if it is empty."""
    count, group = repeats(summary), label(summary)
    place = f"[{summary.cluster_hex}]"
    if count > 0:
        place = f"until {until} {place}"
    if summary.merged_into is not None:
        place += f" is now part of [{summary.merged_into:016x}]"
    elif count <= 0:
        return ()
    return f"{mark} repeated {count}×" if count > 0 else mark, place + group, summary.pattern


def label(summary: Summary) -> str:
    """Name, group and variant for people to read, in front of a pattern; empty without all."""
    return _label(summary.group, summary.variant, summary.name)


def _label(group: str, variant: Sequence[str], name: str = "") -> str:
    """Make the label of a summary.

    >>> _label('{"pod":"api-1"}', ("ERROR", "5xx"))
    ' (pod=api-1, ERROR, 5xx)'
    """
    values: dict[str, str] = msgspec.json.decode(group) if group else {}
    shown = [f"{name}={readable(value.encode(), MAX_VALUE)}" for name, value in values.items()]
    shown = [*([name] if name else []), *shown, *variant]
    return f" ({', '.join(shown)})" if shown else ""


def time_text(time_us: int, since_us: int, zone: tzinfo | None = UTC) -> str:
    """A time of day, with the date if it differs from that of `since_us`.

    >>> time_text(1_700_000_000_000_000, 1_699_999_000_000_000)
    '22:13:20'
    >>> time_text(1_700_000_000_000_000, 1_600_000_000_000_000)
    '2023-11-14 22:13:20'

    Args:
        time_us: the time to show.
        since_us: the time it follows.
        zone: the zone to show it in; None for the machine's.
    """
    moment = datetime.fromtimestamp(time_us // US_PER_S, UTC).astimezone(zone)
    since = datetime.fromtimestamp(since_us // US_PER_S, UTC).astimezone(zone)
    same_day = moment.date() == since.date()
    return moment.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")


def iso_time(time_us: int) -> str:
    """A time as ISO 8601 in UTC, with as many decimals as it needs.

    >>> iso_time(1_700_000_000_250_000)
    '2023-11-14T22:13:20.250Z'
    """
    seconds, micros = divmod(time_us, US_PER_S)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    if not micros:
        return moment + "Z"
    return moment + (f".{micros // 1000:03d}Z" if micros % 1000 == 0 else f".{micros:06d}Z")
