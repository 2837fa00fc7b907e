"""The examples of Kafka: clicks, which arrive in two waves, beside the same in Python; and a database's changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from helios.script import load_script
from tests.kafka.changes import ID, NAME, Database
from tests.kafka.conftest import Topics

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("documents")]

EXAMPLES = Path(__file__).parents[2] / "examples"
HOUR = timedelta(hours=1)


@pytest.mark.slow
def test_clicks_and_their_hours_are_right(world: Any, topics: Topics) -> None:
    name = topics.make(partitions=2)
    given = {"topic": name, "servers": topics.broker.servers}
    clicks: list[dict[str, Any]] = []
    for hours in ("0-2", "2-4"):
        (sent,) = load_script(EXAMPLES / "send_clicks.py", {**given, "hours": hours}).choose(None)
        clicks += [dict(zip(sent.stream.source.columns, row, strict=True)) for row in sent.stream.source.rows]
        world.run(sent)
        topics.send(name, [b'{"visitor": "v1", "page": "/"}'])
        assert world.runner(load_script(EXAMPLES / "clicks.py", given).choose(None), once=True).run()

    found = world.rows("web.clicks", "visitor", "page", "seconds", "at")
    assert sorted(found.elements()) == sorted((c["visitor"], c["page"], c["seconds"], c["at"]) for c in clicks)
    assert [r for (r,) in world.rows("web.bad_clicks", "reason").elements()] == ["at is missing", "at is missing"]

    groups: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for click in clicks:
        groups[click["at"].replace(minute=0, second=0), click["page"]].append(click["seconds"])
    # Windows are complete when the newest click is an hour past their end.
    newest = max(click["at"] for click in clicks)
    expected = {(h, page, len(s), sum(s), max(s)) for (h, page), s in groups.items() if h + HOUR <= newest - HOUR}
    assert len(expected) == 2 * 5
    found = world.rows("web.page_hours", "window_start", "page", "clicks", "seconds", "longest")
    assert found == Counter(expected)


def test_a_database_is_mirrored_with_its_new_tables(world: Any, topics: Topics) -> None:
    database = Database(topics)
    given = {"prefix": database.prefix, "servers": topics.broker.servers}

    def mirrored() -> None:
        assert world.runner(load_script(EXAMPLES / "mirror.py", given).choose(None), once=True).run()

    for id in range(3):
        database.send("public.customers", {"id": id}, {"op": "c", "after": {"id": id, "name": f"n{id}"}})
    mirrored()
    database.send("public.customers", {"id": 1}, {"op": "u", "after": {"id": 1, "name": "new"}})
    database.send("public.customers", {"id": 2}, {"op": "d", "before": {"id": 2, "name": "n2"}}, None)
    # Columns of its own: a new table that is like another one may be that one, renamed.
    first = {"op": "c", "after": {"id": 7, "item": "first"}, "fields": (ID, {**NAME, "field": "item"})}
    database.send("public.orders", {"id": 7}, first)
    for _ in range(2):  # the second run has nothing to do
        mirrored()
    assert sorted(world.rows("shop.customers", "id", "name").elements()) == [(0, "n0"), (1, "new")]
    assert sorted(world.rows("shop.orders", "id", "item").elements()) == [(7, "first")]
    assert len(world.load("shop.helios_mirror").snapshots()) == 2
