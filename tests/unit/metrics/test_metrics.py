"""The figures of a run: what they add up to, over which time, and what Prometheus is shown."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from helios.errors import InputError
from helios.metrics.metrics import Counts, Figures, Metrics, MetricsSnapshot

pytestmark = pytest.mark.promise("metrics")

SPEC_FIELDS = (
    "records_written", "records_failed", "bytes_written", "commits_success", "commits_failed", "commit_retries",
    "files_created", "batches_flushed", "commit_latency_us", "write_latency_us", "batch_size_min", "batch_size_max",
    "batch_size_sum",
)  # fmt: skip
SPEC_METHODS = (
    "avg_commit_latency_ms", "avg_write_latency_ms", "success_rate", "retry_rate", "bytes_per_second",
    "records_per_second", "avg_batch_size",
)  # fmt: skip


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics("orders", "local.sales.orders", clock=clock)


def batch(metrics: Metrics, records: int, *, write: float = 2.0, commit: float = 0.5) -> None:
    """A batch of two files and ten bytes a row."""
    metrics.flushed(seconds=write)
    metrics.committed(records=records, bytes=10 * records, files=2, seconds=commit)


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(figures: Figures, sample: str, **labels: str) -> float:
    """The one sample of this name, as a server would read it."""
    found = [
        one.value
        for family in parsed(figures.to_prometheus()).values()
        for one in family.samples
        if one.name == sample and labels.items() <= one.labels.items()
    ]
    assert len(found) == 1, f"{sample}: {found}"
    return found[0]


# fields and methods


def test_batches_add_up(metrics: Metrics) -> None:
    for records in (300, 100, 200):
        batch(metrics, records)
    metrics.flushed(seconds=1.0)
    metrics.retried()
    metrics.failed()
    metrics.records_rejected(7)
    metrics.records_dropped_late(2)
    metrics.records_dropped_late(3)
    assert metrics.records_late == json.loads(metrics.to_json())["records_late"] == 5
    assert value(metrics, "iceberg_records_late_total") == 5
    metrics.scanned(matched=3, skipped=40, bytes=300, partitions_matched=2, partitions_skipped=20)
    metrics.scanned(matched=1, skipped=2, bytes=50, partitions_matched=1)
    assert {name: getattr(metrics, name) for name in SPEC_FIELDS} == {
        "records_written": 600,
        "records_failed": 7,
        "bytes_written": 6000,
        "commits_success": 3,
        "commits_failed": 1,
        "commit_retries": 1,
        "files_created": 6,
        "batches_flushed": 4,
        "commit_latency_us": 1_500_000,
        "write_latency_us": 7_000_000,
        "batch_size_min": 100,
        "batch_size_max": 300,
        "batch_size_sum": 600,
    }
    assert (metrics.files_matched, metrics.files_skipped, metrics.bytes_read) == (4, 42, 350)
    assert (metrics.partitions_matched, metrics.partitions_skipped) == (3, 20)
    assert value(metrics, "iceberg_source_partitions_matched_total") == 3
    assert value(metrics, "iceberg_source_partitions_skipped_total") == 20
    assert metrics.avg_commit_latency_ms() == 500.0
    assert metrics.avg_write_latency_ms() == 1750.0
    assert metrics.success_rate() == 0.75
    assert metrics.retry_rate() == 0.25
    assert metrics.avg_batch_size() == 200.0


def test_nothing_is_divided_by_zero(metrics: Metrics) -> None:
    values = {name: getattr(metrics, name)() for name in SPEC_METHODS}
    assert values == {**dict.fromkeys(SPEC_METHODS, 0.0), "success_rate": 1.0}
    assert (metrics.batch_size_min, metrics.batch_size_max) == (0, 0)
    assert (metrics.source_lag_snapshots, metrics.source_lag_seconds) == (None, None)


def test_an_empty_batch_is_the_smallest_one(metrics: Metrics) -> None:
    for records in (5, 0, 3):
        batch(metrics, records)
    assert (metrics.batch_size_min, metrics.batch_size_max, metrics.batch_size_sum) == (0, 5, 8)


def test_the_rates_are_over_the_time_of_the_run(metrics: Metrics, clock: Clock) -> None:
    clock.now += 100  # it waits for another pipeline's table
    metrics.started()
    clock.now += 4
    metrics.started()
    clock.now += 6
    batch(metrics, 500)
    assert (metrics.seconds, metrics.records_per_second(), metrics.bytes_per_second()) == (10.0, 50.0, 500.0)
    metrics.ended()
    clock.now += 1000
    metrics.ended()
    assert metrics.records_per_second() == 50.0
    metrics.started()
    clock.now += 10
    assert (metrics.seconds, metrics.records_per_second()) == (20.0, 25.0)


@pytest.mark.parametrize("running", [True, False])
def test_a_reset_begins_the_time_anew(running: bool, metrics: Metrics, clock: Clock) -> None:
    metrics.started()
    clock.now += 10
    if not running:
        metrics.ended()
    assert metrics.snapshot_and_reset().seconds == 10.0
    clock.now += 5
    assert metrics.seconds == (5.0 if running else 0.0)


def test_a_snapshot_stands_still(metrics: Metrics) -> None:
    batch(metrics, 10)
    before = metrics.snapshot()
    text = before.to_prometheus()
    batch(metrics, 20)
    assert (before.records_written, before.avg_batch_size(), metrics.records_written) == (10, 10.0, 30)
    assert before.snapshot() is before
    assert before.to_prometheus() == text != metrics.to_prometheus()
    with pytest.raises(FrozenInstanceError):
        before.records_written = 0  # type: ignore[misc]


def test_only_recording_changes_a_field(metrics: Metrics) -> None:
    with pytest.raises(AttributeError, match="records_written"):
        metrics.records_written = 5  # type: ignore[misc]


@pytest.mark.parametrize("name", [one.name for one in fields(Counts)])
def test_every_sum_is_a_field_of_the_live_figures(name: str, metrics: Metrics) -> None:
    assert getattr(metrics, name) == 0
    assert name in (Counts.__doc__ or "")


def test_json_has_every_field_and_every_method(metrics: Metrics, clock: Clock) -> None:
    metrics.started()
    batch(metrics, 300)
    clock.now += 3
    told = json.loads(metrics.to_json())
    assert told == json.loads(metrics.snapshot().to_json())
    assert {name: told[name] for name in SPEC_FIELDS} == {name: getattr(metrics, name) for name in SPEC_FIELDS}
    assert {name: told[name] for name in SPEC_METHODS} == {name: getattr(metrics, name)() for name in SPEC_METHODS}
    assert (told["pipeline"], told["table"], told["seconds"]) == ("orders", "local.sales.orders", 3.0)
    assert (told["records_per_second"], told["source_lag_seconds"]) == (100.0, None)
    metrics.lag(snapshots=2, seconds=8.0)
    told = json.loads(metrics.to_json())
    assert (told["source_lag_snapshots"], told["source_lag_seconds"]) == (2, 8.0)


# lag


def test_the_lag_grows_until_it_is_measured_again(metrics: Metrics, clock: Clock) -> None:
    metrics.lag(snapshots=2, seconds=30.0)
    clock.now += 12
    assert (metrics.source_lag_snapshots, metrics.source_lag_seconds) == (2, 42.0)
    assert value(metrics, "iceberg_source_lag_seconds") == 42.0
    metrics.ended()
    clock.now += 1
    assert metrics.snapshot_and_reset().source_lag_seconds == metrics.source_lag_seconds == 43.0
    metrics.lag(snapshots=0, seconds=0.0)
    clock.now += 60
    assert (metrics.source_lag_snapshots, metrics.source_lag_seconds) == (0, 0.0)


def test_an_unknown_lag_has_no_sample(metrics: Metrics) -> None:
    families = parsed(metrics.to_prometheus())
    assert families["iceberg_source_lag_seconds"].samples == []


# periods and threads


def test_a_reset_never_touches_what_prometheus_sees(metrics: Metrics) -> None:
    batch(metrics, 100, write=2.0, commit=0.5)
    metrics.failed()
    before = metrics.to_prometheus()
    period = metrics.snapshot_and_reset()
    assert (period.records_written, metrics.records_written, metrics.batch_size_min) == (100, 0, 0)
    assert metrics.to_prometheus() == period.to_prometheus() == before
    batch(metrics, 300, write=4.0, commit=1.5)
    assert (metrics.batch_size_min, metrics.commits_failed, metrics.avg_commit_latency_ms()) == (300, 0, 1500.0)
    assert value(metrics, "iceberg_records_written_total") == 400
    assert value(metrics, "iceberg_batches_committed_total") == 2
    assert value(metrics, "iceberg_commits_failed_total") == 1
    assert value(metrics, "iceberg_commit_duration_seconds_sum") == 2.0
    assert value(metrics, "iceberg_write_duration_seconds_count") == 2


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns so often that an update without a lock is lost at once."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_no_count_is_lost_between_threads_and_periods() -> None:
    threads, each, records = 6, 300, 7
    metrics = Metrics("orders", "t")
    gate, over = threading.Barrier(threads + 1), threading.Event()
    periods: list[MetricsSnapshot] = []
    seen: list[float] = []

    def work() -> None:
        gate.wait()
        for _ in range(each):
            metrics.flushed(seconds=0.25)
            metrics.retried()
            metrics.committed(records=records, bytes=70, files=1, seconds=0.5)

    def report() -> None:
        gate.wait()
        while not over.is_set():
            periods.append(metrics.snapshot_and_reset())
            seen.append(value(metrics, "iceberg_records_written_total"))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    reporter = threading.Thread(target=report)
    for thread in (*workers, reporter):
        thread.start()
    for thread in workers:
        thread.join()
    over.set()
    reporter.join()
    periods.append(metrics.snapshot_and_reset())

    commits = threads * each
    for name, expected in {
        "commits_success": commits,
        "commit_retries": commits,
        "records_written": commits * records,
        "batch_size_sum": commits * records,
        "commit_latency_us": commits * 500_000,
        "write_latency_us": commits * 250_000,
    }.items():
        assert sum(getattr(period, name) for period in periods) == expected
        assert getattr(periods[-1].since_start, name) == expected
    # Every period is whole: what one commit adds is never torn apart.
    assert all(period.records_written == records * period.commits_success for period in periods)
    assert all({period.batch_size_min, period.batch_size_max} <= {0, records} for period in periods)
    assert value(metrics, "iceberg_records_per_batch_bucket", le="10.0") == commits
    assert value(metrics, "iceberg_commit_duration_seconds_count") == commits
    assert len(seen) > 1
    assert seen == sorted(seen)


# Prometheus


def test_every_name_of_the_contract_is_served(metrics: Metrics) -> None:
    batch(metrics, 250, write=2.0, commit=0.5)
    metrics.retried()
    metrics.failed()
    metrics.lag(snapshots=1, seconds=4.5)
    families = parsed(metrics.to_prometheus())
    counters = {
        "iceberg_records_written": 250,
        "iceberg_bytes_written": 2500,
        "iceberg_batches_committed": 1,
        "iceberg_commits_failed": 1,
        "iceberg_commit_retries": 1,
        "iceberg_files_created": 2,
    }
    for name, expected in counters.items():
        assert families[name].type == "counter"
        assert [(one.name, one.value) for one in families[name].samples] == [(f"{name}_total", expected)]
    sums = {
        "iceberg_commit_duration_seconds": 0.5,
        "iceberg_write_duration_seconds": 2.0,
        "iceberg_records_per_batch": 250,
    }
    for name, expected in sums.items():
        assert families[name].type == "histogram"
        assert (value(metrics, f"{name}_count"), value(metrics, f"{name}_sum")) == (1, expected)
    assert families["iceberg_source_lag_seconds"].type == "gauge"
    assert value(metrics, "iceberg_source_lag_seconds") == 4.5
    for family in families.values():
        assert family.documentation
        for sample in family.samples:
            labels = {"pipeline": "orders", "table": "local.sales.orders"}
            assert {key: text for key, text in sample.labels.items() if key != "le"} == labels


def test_buckets_are_cumulative_and_their_bounds_inclusive(metrics: Metrics) -> None:
    for seconds in (0.05, 0.051, 5.0, 1e6):
        batch(metrics, 1, commit=seconds)
    samples = parsed(metrics.to_prometheus())["iceberg_commit_duration_seconds"].samples
    buckets = {one.labels["le"]: one.value for one in samples if one.name.endswith("_bucket")}
    assert (buckets["0.05"], buckets["0.1"], buckets["2.5"], buckets["5.0"], buckets["300.0"]) == (1, 2, 2, 3, 3)
    assert buckets["+Inf"] == value(metrics, "iceberg_commit_duration_seconds_count") == 4
    assert list(buckets.values()) == sorted(buckets.values())
    assert [float(bound) for bound in buckets] == sorted(float(bound) for bound in buckets)


def test_a_prefix_stands_before_every_name(metrics: Metrics) -> None:
    batch(metrics, 1)
    text = metrics.to_prometheus("acme_")
    assert set(parsed(text)) == {f"acme_{name}" for name in parsed(metrics.to_prometheus())}
    assert text.replace("acme_", "") == metrics.to_prometheus()


@pytest.mark.parametrize("prefix", ["9lives_", "my-app_", "a b", "x\n", "é_"])
def test_a_prefix_that_no_name_can_have_is_refused(prefix: str, metrics: Metrics) -> None:
    with pytest.raises(InputError, match=r"the name of a metric cannot begin with .* Fix: use letters"):
        metrics.to_prometheus(prefix)


AWKWARD = st.text(st.sampled_from('\\"n\n{},= aé\r\t\u2028'), max_size=8)


@given(pipeline=AWKWARD, table=AWKWARD)
def test_labels_come_out_as_they_went_in(pipeline: str, table: str) -> None:
    families = parsed(Metrics(pipeline, table).to_prometheus())
    (sample,) = families["iceberg_records_written"].samples
    assert sample.labels == {"pipeline": pipeline, "table": table}
