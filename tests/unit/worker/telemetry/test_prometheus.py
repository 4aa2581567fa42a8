"""What Prometheus sees: parsed back by the client's own parsers."""

from __future__ import annotations

import threading

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from stream_dedup.metrics import BOUNDS, COUNTERS, GAUGES, HISTOGRAMS, METRICS, start_at_zero
from stream_dedup.worker.telemetry.prometheus import MAX_LABEL_CHARS, PrometheusMetrics

OPEN = "application/openmetrics-text; version=1.0.0"


def samples(metrics: PrometheusMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample of ours: (name without the prefix, the labels' values in order) → value."""
    found = {}
    for family in parse(metrics.exposition()[1].decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("stream_dedup_")
            labels = METRICS.get(name, METRICS.get(name.rpartition("_")[0]))
            if labels is not None:
                order = [label for label in (*labels.labels, "le") if label in sample.labels]
                found[name, tuple(sample.labels[label] for label in order)] = sample.value
    return found


def test_counters_gauges_and_histograms_are_shown() -> None:
    metrics = PrometheusMetrics()
    metrics.add("events_total", 500, pipeline="p", topic="t")
    metrics.add("events_total", 20, pipeline="p", topic="t")
    metrics.set("lag_events", 7, pipeline="p", topic="t", partition=3)
    metrics.set("lag_events", 9, pipeline="p", topic="t", partition="3")
    metrics.set("ready", 1)
    for seconds in (0.0004, 0.01, 0.02, 100):
        metrics.observe("stage_seconds", seconds, pipeline="p", stage="poll")
    seen = samples(metrics)
    assert seen["events_total", ("p", "t")] == 520
    assert seen["lag_events", ("p", "t", "3")] == 9
    assert seen["ready", ()] == 1
    assert seen["stage_seconds_count", ("p", "poll")] == 4
    assert abs(seen["stage_seconds_sum", ("p", "poll")] - 100.0304) < 1e-9
    buckets = {key[1][-1]: n for key, n in seen.items() if key[0] == "stage_seconds_bucket"}
    assert buckets["0.005"] == 1
    assert buckets["0.01"] == 2  # up to and including
    assert buckets["10.0"] == 3
    assert buckets["+Inf"] == 4


def test_both_formats_have_every_metric_with_its_kind_and_help() -> None:
    metrics = PrometheusMetrics()
    start_at_zero(metrics, "p")
    metrics.set("info", 1, version="1.0", kernel="native")
    metrics.observe("redis_seconds", 0.1, pipeline="p")
    for accept, parser in (("", parse), (OPEN, parse_open)):
        content_type, text = metrics.exposition(accept)
        assert content_type.startswith(accept.partition(";")[0] or "text/plain")
        families = {family.name: family for family in parser(text.decode())}
        for name in METRICS:
            family = families[f"stream_dedup_{name}".removesuffix("_total")]
            kinds: dict[str, set[str]] = {
                "counter": set(COUNTERS),
                "gauge": set(GAUGES),
                "histogram": set(HISTOGRAMS),
            }
            assert name in kinds[family.type]
            assert METRICS[name].help == family.documentation
        assert "process_resident_memory_bytes" in families
        assert "python_info" in families
        assert not any(name.endswith("_created") for name in families)


def test_a_removed_series_starts_again_from_zero() -> None:
    metrics = PrometheusMetrics()
    for partition in range(3):
        metrics.set("lag_events", 5, pipeline="p", topic="t", partition=partition)
    metrics.add("commits_total", 5, pipeline="p")
    metrics.observe("kernel_seconds", 1, pipeline="p")
    metrics.remove("lag_events", pipeline="p", topic="t", partition=1)
    metrics.remove("commits_total", pipeline="p")
    metrics.remove("kernel_seconds")
    metrics.add("commits_total", 1, pipeline="p")
    metrics.set("lag_events", 6, pipeline="p", topic="t", partition=2)
    seen = samples(metrics)
    assert ("lag_events", ("p", "t", "1")) not in seen
    assert seen["lag_events", ("p", "t", "2")] == 6
    assert seen["commits_total", ("p",)] == 1
    assert ("kernel_seconds_count", ("p",)) not in seen


def test_values_from_data_are_bounded_and_what_was_folded_is_counted() -> None:
    metrics = PrometheusMetrics()
    for number in range(200):
        for _ in range(2):
            metrics.add("passed_total", pipeline="p", reason=f"reason {number}")
    seen = {key[1][1]: n for key, n in samples(metrics).items() if key[0] == "passed_total"}
    assert BOUNDS["reason"] + 1 == len(seen)
    assert sum(seen.values()) == 400
    assert seen["reason 0"] == 2
    assert (200 - BOUNDS["reason"]) * 2 == seen["other"]
    folded = samples(metrics)["folded_labels_total", ("stream_dedup_passed_total",)]
    assert seen["other"] == folded
    assert len(metrics._counters.found) < BOUNDS["reason"] + 5  # does not grow with the data


def test_a_gauge_omits_labels_past_the_bound_until_others_leave() -> None:
    metrics = PrometheusMetrics()
    for number in range(BOUNDS["topic"] + 1):
        for partition in range(2):
            metrics.set("lag_events", 1, pipeline="p", topic=f"t{number}", partition=partition)
    last = f"t{BOUNDS['topic']}"
    assert ("lag_events", ("p", last, "0")) not in samples(metrics)
    assert samples(metrics)["folded_labels_total", ("stream_dedup_lag_events",)] == 2
    metrics.remove("lag_events", topic="t0")
    metrics.set("lag_events", 1, pipeline="p", topic=last, partition=0)
    assert ("lag_events", ("p", last, "0")) in samples(metrics)


def test_a_label_of_any_text_does_not_break_the_page() -> None:
    metrics = PrometheusMetrics()
    reasons = ['a"b\\c\nd', "half \ud800 character", "\x00\x1b[2J", "x" * 10_000, ""]
    for reason in reasons:
        metrics.add("dead_letters_total", pipeline="p", reason=reason)
    for accept, parser in (("", parse), (OPEN, parse_open)):
        text = metrics.exposition(accept)[1].decode()
        [family] = [f for f in parser(text) if f.name == "stream_dedup_dead_letters"]
        shown = [s.labels["reason"] for s in family.samples if s.name.endswith("_total")]
        assert [reasons[0], "half \\ud800 character", reasons[2]] == shown[:3]
        assert shown[3] == "x" * MAX_LABEL_CHARS


def test_threads_lose_no_counts_while_the_page_is_made() -> None:
    metrics = PrometheusMetrics()

    def count() -> None:
        for _ in range(5_000):
            metrics.add("events_total", 1, pipeline="p", topic="t")
            metrics.observe("kernel_seconds", 0.1, pipeline="p")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        samples(metrics)
    for thread in threads:
        thread.join()
    assert samples(metrics)["events_total", ("p", "t")] == 20_000
    assert samples(metrics)["kernel_seconds_count", ("p",)] == 20_000


def test_values_are_those_that_were_given() -> None:
    metrics = PrometheusMetrics()
    metrics.add("events_total", 5, pipeline="p", topic="t")
    metrics.set("lag_events", 7, pipeline="p", topic="t", partition=3)
    assert metrics.values("events_total") == {("p", "t"): 5}
    assert metrics.values("lag_events") == {("p", "t", "3"): 7}
    assert metrics.values("commits_total") == {}
