"""Topics into tables: each record once, through restarts, replays, new partitions, and what is lost is told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import where
from helios.errors import CheckpointError, InputError, NotFound
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import open_source
from helios.sources.kafka.topics import RecordsLost
from tests.kafka.conftest import Topics, numbered
from tests.suite.deaths import dies_before_commit

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka")]


def offsets(*ends: int) -> Counter[tuple[int, int]]:
    """Each partition and offset once."""
    return Counter((partition, offset) for partition, end in enumerate(ends) for offset in range(end))


@pytest.mark.landing
def test_each_record_is_in_the_table_once_through_restarts_and_a_lost_commit(
    world: Any, topics: Topics, forget_commit: Callable[[Path, int], None]
) -> None:
    name = topics.make(partitions=3)
    for partition, end in enumerate((50, 30, 0)):
        topics.send(name, numbered(0, end), partition)
    pipeline = topics.ids(name).incremental(poll=1, max_rows=40) >> world.sink("a.t").exactly_once()
    run = world.run(pipeline)
    assert run.batches == 2
    assert world.rows("a.t", "partition", "offset") == offsets(50, 30)
    topics.send(name, numbered(30, 35), 1)
    topics.send(name, numbered(0, 5), 2)
    forget_commit(world.checkpoint(pipeline), 1)
    world.run(pipeline)
    assert world.rows("a.t", "partition", "offset") == offsets(50, 35, 5)
    assert world.kinds().count("skipped") == 1


def test_a_batch_that_was_planned_and_not_committed_reads_the_same_records_again(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 10))
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    with dies_before_commit():
        world.run(pipeline)
    topics.send(name, numbered(10, 15))
    world.run(pipeline)
    assert world.rows("a.t", "partition", "offset") == offsets(15)
    assert [s.summary["added-records"] for s in world.load("a.t").snapshots()] == ["10", "5"]


def test_a_lost_checkpoint_resumes_at_the_position_of_its_target(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.send(name, numbered(0, 10), 1)
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    world.run(pipeline)
    topics.send(name, numbered(0, 4), 0)
    world.run(pipeline, new_checkpoint=True)
    assert world.rows("a.t", "partition", "offset") == offsets(4, 10)


def test_it_is_read_once_and_identical_inputs_are_not_appended_again(world: Any, topics: Topics) -> None:
    name = topics.make()
    pipeline = topics.ids(name) >> where("id <> 3") >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == []
    topics.send(name, numbered(0, 6))
    for _ in range(2):
        world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2, 4, 5]


def test_records_of_transactions_that_are_not_committed_are_not_read(world: Any, topics: Topics) -> None:
    name = topics.make()
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    topics.transaction(name, numbered(0, 3), "commit")
    topics.transaction(name, numbered(100, 105), "abort")
    world.run(pipeline)  # the range ends in aborted records
    assert world.ids("a.t") == [0, 1, 2]
    topics.transaction(name, numbered(200, 203), "abort")
    world.run(pipeline)  # and has nothing else
    opened = topics.transaction(name, numbered(3, 5), "none")
    topics.send(name, numbered(5, 7))
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2]
    opened.commitTransaction()
    opened.close()
    world.run(pipeline)
    assert world.ids("a.t") == list(range(7))


@pytest.mark.landing
def test_where_reading_begins(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.send(name, numbered(0, 5), 0)
    at = world.spark.sql("SELECT current_timestamp() + interval 1 milliseconds").collect()[0][0]
    world.spark.sql("SELECT 1").collect()
    topics.send(name, numbered(10, 15), 1)
    source = topics.ids(name)
    for target, start, expected in (
        ("a.time", at.astimezone().isoformat(), {*range(10, 15)}),
        ("a.offsets", {0: 3, 1: 4}, {3, 4, 14}),
        ("a.latest", "latest", set()),
    ):
        pipeline = (source.start(start).incremental() >> world.sink(target)).named(target)
        world.run(pipeline)
        assert set(world.ids(target)) == expected, target
    topics.send(name, numbered(20, 22), 1)
    world.run(pipeline)
    assert world.ids("a.latest") == [20, 21]
    with pytest.raises(CheckpointError, match="has been followed from latest; the pipeline now declares earliest"):
        world.run((source.incremental() >> world.sink("a.latest")).named("a.latest"))
    with pytest.raises(InputError, match=r"partition 1 of t\d+ is missing: the topic has 2"):
        world.run((source.start({0: 3}) >> world.sink("a.x")).named("x"))
    with pytest.raises(InputError, match=r"partition 1 of t\d+ has the offsets 0 to 7, and 70 is none of them"):
        world.run((source.start({0: 3, 1: 70}) >> world.sink("a.x")).named("x"))


def test_new_partitions_and_new_topics_are_read_from_their_beginning(world: Any, topics: Topics) -> None:
    first = topics.make(name="grown-a")
    source = topics.source(pattern="grown-.*").value("json", schema="id bigint")
    pipeline = source.start("latest").incremental() >> world.sink("a.t")
    topics.send(first, numbered(0, 3))
    world.run(pipeline)
    topics.grow(first, 2)
    topics.send(first, numbered(10, 13), 1)
    second = topics.make(name="grown-b")
    topics.send(second, numbered(20, 25))
    topics.purge(second, 2)
    world.run(pipeline)
    topics.send(first, numbered(3, 4))
    topics.send(second, numbered(25, 26))
    world.run(pipeline)
    assert world.ids("a.t") == [3, 10, 11, 12, 22, 23, 24, 25]


@pytest.mark.landing
def test_records_that_retention_deleted_before_they_were_read_stop_the_run(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.send(name, numbered(0, 5))
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    world.run(pipeline)
    topics.purge(name, 5)  # these were read
    topics.send(name, numbered(5, 10))
    world.run(pipeline)
    topics.send(name, numbered(10, 20))
    topics.purge(name, 13)
    with pytest.raises(RecordsLost, match=rf"3 records of {name}, partition 0, were deleted before they were read"):
        world.run(pipeline)
    assert world.ids("a.t") == list(range(10))
    world.run(topics.ids(name).incremental().on_missing("skip") >> world.sink("a.t"))
    assert world.ids("a.t") == [*range(10), *range(13, 20)]
    told = [event.message for event in world.events if event.kind == "noted"]
    left_out = f'{name}, partition 0, were deleted before they were read, and are left out (.on_missing("skip"))'
    assert f"3 records of {left_out}: offsets 10 to 12" in told


def test_a_planned_batch_whose_records_are_gone_stops_the_run(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 10))
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    with dies_before_commit():
        world.run(pipeline)
    topics.purge(name, 4)
    with pytest.raises(RecordsLost, match=r"4 records of t\d+, partition 0, were deleted before they were read"):
        world.run(pipeline)
    assert world.ids("a.t") == []
    world.run(topics.ids(name).incremental().on_missing("skip") >> world.sink("a.t"))
    assert world.ids("a.t") == list(range(4, 10))


def test_a_topic_that_is_missing_gone_or_made_again_is_told(world: Any, topics: Topics) -> None:
    name = topics.make(name="visits")
    with pytest.raises(NotFound, match=r"topic 'vists' does not exist on 127.0.0.1:\d+. Did you mean 'visits'"):
        world.run(topics.ids("vists") >> world.sink("a.t"))
    topics.send(name, numbered(0, 5))
    pipeline = topics.ids(name).incremental() >> world.sink("a.t")
    world.run(pipeline)
    topics.delete(name)
    with pytest.raises(RecordsLost, match="the topic visits is gone"):
        world.run(pipeline)
    topics.make(name="visits")
    topics.send(name, numbered(100, 110))
    with pytest.raises(RecordsLost, match="the topic visits was deleted and recreated"):
        world.run(pipeline)
    assert world.ids("a.t") == list(range(5))
    world.run((topics.ids(name).incremental() >> world.sink("a.u")).named("anew"))
    assert world.ids("a.u") == list(range(100, 110))


def test_the_lag_is_counted_in_records_and_seconds(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.send(name, numbered(0, 7), 0)
    topics.send(name, numbered(0, 3), 1)
    pipeline = topics.ids(name).incremental(max_rows=4) >> world.sink("a.t")
    reader = open_source(SourceContext(plan=world.plan(pipeline), spark=world.spark), 0)
    begun = time.time()
    lag = reader.lag(reader.begin()["place"])
    assert lag is not None
    assert (lag.snapshots, lag.records) == (0, 10)
    assert 0 < lag.seconds < time.time() - begun + 60
    run = world.run(pipeline)
    assert run.batches == 3
    metrics = run.metrics()
    assert (metrics.source_lag_records, metrics.source_lag_seconds) == (0, 0.0)
    assert 'iceberg_source_lag_records{pipeline="local.a.t",table="local.a.t"} 0.0' in metrics.to_prometheus()


def test_the_last_record_of_a_key_is_kept_by_its_offset(world: Any, topics: Topics) -> None:
    name = topics.make()
    source = topics.source(name).value("json", schema="id bigint, v bigint, at bigint")
    topics.send(name, [{"id": 1, "v": v, "at": 5} for v in (3, 9, 4)])
    pipeline = source.incremental() >> world.sink("a.t").upsert("id", order_by="at")
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter({(1, 4): 1})


def test_windows_over_topics_equal_a_batch(world: Any, topics: Topics) -> None:
    from helios import watermark, window

    name = topics.make(partitions=2)
    source = topics.source(name).value("json", schema="id bigint, at timestamp")
    values = [{"id": n, "at": f"2026-01-01T00:{n % 60:02}:00Z"} for n in range(240)]
    topics.send(name, values[:120], 0)
    topics.send(name, values[120:], 1)
    counts = window("at", "10 minutes").agg(n="count(*)")
    pipeline = source.incremental() >> watermark("at", "10 minutes") >> counts >> world.sink("a.t")
    world.run(pipeline)
    topics.send(name, [{"id": 0, "at": "2026-01-01T02:00:00Z"}], 0)
    world.run(pipeline)
    assert Counter(n for (n,) in world.rows("a.t", "n").elements()) == Counter({40: 6})
