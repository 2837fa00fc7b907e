"""Rows that a write mode cannot take: a clear error, and the table as it was, to its metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from helios import Memory, expect
from helios.errors import HeliosError

pytestmark = [pytest.mark.promise("bad-input"), pytest.mark.sampled(4)]

MERGE = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET v = batch.v"


@dataclass(frozen=True)
class Bad:
    """A sink, rows that it takes, and rows that it refuses.

    Attributes:
        sink: Gives the sink its mode.
        rows: The rows: `id`, `v`, and what else they have.
        message: What the error says.
        steps: Steps before the sink.
        create: The target's columns.
        schema: The columns of the rows.
        late: Whether it takes the writing to see it: the table has got the columns of the rows by then.
    """

    sink: Callable[[Any], Any]
    rows: list[dict[str, Any]]
    message: str
    steps: tuple[Any, ...] = ()
    create: str = "id bigint, v bigint"
    schema: str = "id bigint, v bigint"
    late: bool = False


CASES: dict[str, Bad] = {
    "upsert-null-key": Bad(
        lambda s: s.upsert("id"),
        [{"id": 7, "v": 1}, {"id": None, "v": 2}],
        r"null key: id is null in id=None, v=2.*nothing was written",
    ),
    "upsert-null-key-of-two": Bad(
        lambda s: s.upsert("id", "v", order_by="v"), [{"id": 7, "v": None}], r"null key: v is null"
    ),
    "upsert-history-null-key": Bad(
        lambda s: s.upsert("id", order_by="v", history=True),
        [{"id": None, "v": 2}],
        r"null key: id is null",
        create="id bigint, v bigint, valid_from bigint, valid_to bigint",
    ),
    "delete-null-key": Bad(lambda s: s.delete("id"), [{"id": 1, "v": 1}, {"id": None, "v": 2}], r"null key: id"),
    "upsert-two-rows-of-a-key": Bad(
        lambda s: s.upsert("id"),
        [{"id": 7, "v": 1}, {"id": 7, "v": 2}],
        r"2 rows .* have the key id=7, and no order tells which is the newest",
    ),
    "overwrite-outside-the-filter": Bad(
        lambda s: s.overwrite("v < 10"),
        [{"id": 7, "v": 1}, {"id": 8, "v": 10}],
        r"a row that does not match the filter",
    ),
    "overwrite-null-in-the-filter": Bad(
        lambda s: s.overwrite("v < 10"), [{"id": 7, "v": None}], r"a row that does not match the filter"
    ),
    "merge-two-rows-of-a-key": Bad(
        lambda s: s.merge_sql(MERGE), [{"id": 1, "v": 1}, {"id": 1, "v": 2}], r"MERGE_CARDINALITY_VIOLATION|single row"
    ),
    "append-text-for-a-number": Bad(
        lambda s: s.append(), [{"id": 7, "v": "x"}], r"v.*string|string.*v", schema="id bigint, v string"
    ),
    "append-a-narrower-target": Bad(
        lambda s: s.append(), [{"id": 7, "v": 2**40}], r"v.*int", create="id bigint, v int"
    ),
    "append-a-null-for-a-required-column": Bad(
        lambda s: s.append(), [{"id": 7, "v": None}], r"v", create="id bigint, v bigint NOT NULL", late=True
    ),
    "upsert-incompatible-key": Bad(
        lambda s: s.upsert("id"), [{"id": "x", "v": 1}], r"id", schema="id string, v bigint"
    ),
    "overwrite-partitions-incompatible": Bad(
        lambda s: s.overwrite_partitions(), [{"id": 7, "v": "x"}], r"v", schema="id bigint, v string"
    ),
    "expectation": Bad(
        lambda s: s.append(),
        [{"id": 7, "v": 1}, {"id": 8, "v": -1}],
        r"expectation positive \(v > 0\)",
        steps=(expect({"positive": "v > 0"}),),
        late=True,
    ),
    "audit": Bad(
        lambda s: s.audit({"positive": "min(v) > 0"}).publish(),
        [{"id": 8, "v": -1}],
        r"did not pass its audit",
        late=True,
    ),
}


def pipeline(world: Any, bad: Bad, rows: list[dict[str, Any]], schema: str) -> Any:
    stream = Memory.source(rows, schema=schema)
    for step in bad.steps:
        stream = stream >> step
    return stream >> bad.sink(world.sink("a.t"))


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("extra", [False, True], ids=["", "and-a-new-column"])
@pytest.mark.cases(
    short=(
        "-upsert-null-key",
        "-upsert-two-rows-of-a-key",
        "-overwrite-outside-the-filter",
        "-append-text-for-a-number",
        "-expectation",
        "-audit",
    )
)
def test_bad_rows_leave_the_table_as_it_was(world: Any, name: str, extra: bool) -> None:
    bad = CASES[name]
    world.sql("CREATE NAMESPACE local.a")
    world.sql(f"CREATE TABLE local.a.t ({bad.create}) USING iceberg")
    world.fill("a.x", [1])
    columns = [c.split()[0] for c in bad.create.split(", ")]
    values = ", ".join({"id": "1", "v": "1"}.get(c, "NULL") for c in columns)
    world.sql(f"INSERT INTO local.a.t VALUES ({values})")
    before = world.catalog.load("a.t")
    rows, head = world.rows("a.t"), before.current_snapshot()
    more = [{**row, "extra": 1} for row in bad.rows] if extra else bad.rows
    schema = bad.schema + (", extra bigint" if extra else "")
    with pytest.raises(HeliosError, match=bad.message):
        world.run(pipeline(world, bad, more, schema))
    after = world.catalog.load("a.t")
    assert after.current_snapshot() == head
    if not (extra and bad.late):
        assert after.iceberg.schema() == before.iceberg.schema()
        assert world.rows("a.t") == rows


@pytest.mark.parametrize("value", [None, "", "a/b", "a b", "..", "é"])
def test_a_route_without_a_name_stops_the_run_before_any_table_is_written(world: Any, value: str | None) -> None:
    world.run(Memory.source([{"id": 1, "to": "x"}]) >> world.sink("a.t").route(by="to"))
    head, tables = world.catalog.load("a.t_x").current_snapshot(), world.catalog.tables("a")
    bad = Memory.source([{"id": 2, "to": "x"}, {"id": 3, "to": "new"}, {"id": 4, "to": value}], "id bigint, to string")
    with pytest.raises(HeliosError, match=r"route\(by='to'\) gave .*, which cannot name a table; nothing was wr"):
        world.run(bad >> world.sink("a.t").route(by="to"))
    assert world.catalog.load("a.t_x").current_snapshot() == head
    assert world.catalog.tables("a") == tables
