"""Changes of a table whose topic was given more partitions: those of a row are in two of them then."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from helios import Cdc, Iceberg
from helios.sources.kafka.topics import RecordsLost
from tests.kafka.changes import Database, Table, event
from tests.kafka.conftest import Topics

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("cdc")]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.cases(slow=("2-False", "1-True"))
def test_snapshots_and_changes_of_a_topic_that_was_given_partitions(
    world: Any, topics: Topics, batches: int, late: bool
) -> None:
    """A row's changes go to another partition then, which may be read earlier than the one of its snapshot."""
    table, now = Table(topics, partitions=2), round(time.time() * 1000) - 60_000
    pipeline = table.source() >> world.sink("a.t").upsert()
    parts = [
        [(1, event("r", {"id": 1, "name": "read"}, lsn=100, snapshot="last"), 1, now)],
        [(1, event("u", {"id": 1, "name": "changed"}, lsn=90), 0, now + 5)],
    ]
    for part in reversed(parts) if late else parts:
        for id, value, partition, at in part:
            table.send(id, value, partition=partition, at=at)
        if batches > 1:
            world.run(pipeline)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "changed"): 1})
    table.send(1, event("r", {"id": 1, "name": "restored"}, lsn=50, snapshot="last"), partition=0, at=now + 9)
    table.send(1, event("u", {"id": 1, "name": "before"}, lsn=200), partition=1, at=now + 8)
    world.run(pipeline)
    assert world.rows("a.t", "id", "name") == Counter({(1, "restored"): 1})


@pytest.mark.slow
@pytest.mark.parametrize("atomic", [False, True])
def test_topics_of_a_mirror_that_grow_lose_records_or_are_made_again(world: Any, topics: Topics, atomic: bool) -> None:
    database = Database(topics)
    pipeline = Cdc.debezium(database.source()) >> Iceberg.mirror("shop", catalog=world.catalog, atomic=atomic)
    for table in ("a", "b"):
        database.send(f"public.{table}", {"id": 1}, {"op": "c", "after": {"id": 1, "name": "first"}})
    world.run(pipeline)
    name = f"{database.prefix}.public.a"
    topics.grow(name, 2)
    change = {"op": "u", "after": {"id": 1, "name": "changed"}}
    database.send("public.a", {"id": 1}, change, partition=1)
    database.send("public.a", {"id": 2}, {"op": "c", "after": {"id": 2, "name": "new"}}, partition=1)
    world.run(pipeline)
    assert world.rows("shop.a", "id", "name") == Counter({(1, "changed"): 1, (2, "new"): 1})
    database.send("public.a", {"id": 3}, {"op": "c", "after": {"id": 3, "name": "kept too short"}})
    topics.purge(name, 2)
    with pytest.raises(RecordsLost, match=f"1 records of {name}, partition 0, were deleted before they were read"):
        world.run(pipeline)
    topics.delete(name)
    with pytest.raises(RecordsLost, match=f"the topic {name} is gone"):
        world.run(pipeline)
    topics.make(name=name)
    database.send("public.a", {"id": 4}, {"op": "c", "after": {"id": 4, "name": "another"}})
    with pytest.raises(RecordsLost, match=f"the topic {name} was deleted and recreated"):
        world.run(pipeline)
    assert (world.ids("shop.a"), world.ids("shop.b")) == ([1, 2], [1])
