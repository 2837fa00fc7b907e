"""Columns of JSON values that are inferred from a sample, and stay."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios.errors import CheckpointError, InputError, NotFound
from tests.kafka.conftest import Topics, numbered

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka-values")]


def kept(world: Any) -> list[Path]:
    return list(world.folder.glob("**/helios/columns/0.json"))


def test_inferred_columns_stay_through_restarts(world: Any, topics: Topics, forget_commit: Any) -> None:
    name = topics.make(partitions=2)
    topics.send(name, [{"id": 1, "deep": {"x": [1, 2]}, "price": 1.5}, {"id": 2, "name": "a"}, b"poison"])
    topics.send(name, [{"id": 3, "ok": True}], 1)
    source = topics.source(name).value("json").metadata("offset").on_bad_row("quarantine")
    pipeline = source.incremental() >> world.sink("a.t").quarantine("a.q")
    world.run(pipeline)
    told = next(event.message for event in world.events if "inferred" in event.message)
    assert "about 1,000 records: deep STRUCT<x: ARRAY<BIGINT>>,id BIGINT,name STRING,ok BOOLEAN,price DOUBLE" in told
    rows = world.load("a.t").iceberg.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["name"], row["ok"], row["price"]) for row in rows] == [
        (1, None, None, 1.5),
        (2, "a", None, None),
        (3, None, True, None),
    ]
    assert rows[0]["deep"] == {"x": [1, 2]}
    # What came later would be inferred otherwise.
    topics.send(name, [{"id": "x"}, {"id": 4, "new": 1}, {"id": 5, "name": 7}])
    [file] = kept(world)
    before = file.read_text()
    world.run(pipeline)
    forget_commit(file.parents[2], 1)
    world.run(pipeline)
    assert file.read_text() == before
    assert world.rows("a.t", "id", "name")[(5, "7")] == 1
    assert world.ids("a.t") == [1, 2, 3, 5]
    reasons = world.rows("a.q", "reason")
    assert reasons == Counter(
        {
            ("the value is not one JSON object",): 1,
            ("id does not fit bigint",): 1,
            ("fields that the schema lacks: new",): 1,
        }
    )


def test_the_sample_is_as_large_as_it_says(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, [*numbered(0, 4), {"id": 4, "late": 1}])
    source = topics.source(name)
    plan = world.plan(source.value("json", sample=4) >> world.sink("a.t"))
    assert "columns inferred from about 4 records at the first start, and kept in the checkpoint" in str(plan)
    assert plan.schema is None
    run = world.run(source.value("json", sample=4).on_bad_row("drop") >> world.sink("a.t"))
    assert (world.ids("a.t"), run.metrics().records_failed) == ([0, 1, 2, 3], 1)
    world.run(source.value("json", sample=4, extra="ignore") >> world.sink("a.u"))
    assert world.ids("a.u") == list(range(5))
    world.run(source.value("json") >> world.sink("a.v"))
    assert world.rows("a.v", "id", "late")[(4, 1)] == 1


def test_a_source_that_begins_at_the_end_looks_at_what_came_before(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 4))
    pipeline = topics.source(name).value("json").start("latest").incremental() >> world.sink("a.t")
    world.run(pipeline)
    topics.send(name, numbered(4, 6))
    world.run(pipeline)
    assert world.ids("a.t") == [4, 5]


def test_nothing_to_infer_from_is_told(world: Any, topics: Topics) -> None:
    name = topics.make()
    with pytest.raises(NotFound, match="there is no record yet from which columns could be inferred"):
        world.run(topics.source(name).value("json").incremental() >> world.sink("a.t"))
    topics.send(name, [b"text", b"[1]", b"{}", None])
    with pytest.raises(InputError, match=r"none of the sampled records \(up to about 1,000\) is a JSON object"):
        world.run(topics.source(name).value("json").incremental() >> world.sink("a.t"))
    topics.send(name, [{"offset": 1}])
    with pytest.raises(InputError, match="two columns are called 'offset'"):
        world.run(topics.source(name).value("json").metadata("offset") >> world.sink("a.t"))


def test_kept_columns_that_are_damaged_are_named(world: Any, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, numbered(0, 2))
    pipeline = topics.source(name).value("json").incremental() >> world.sink("a.t")
    world.run(pipeline)
    [file] = kept(world)
    file.with_name(".0.json.crc").unlink(missing_ok=True)
    file.write_text(json.dumps({"v": 1}))
    with pytest.raises(CheckpointError, match=r"helios/columns/0.json, the inferred columns of a source, cannot be"):
        world.run(pipeline)
