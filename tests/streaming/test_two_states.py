"""`helios diff`: two states of a table, and two tables, against a plain difference of multisets."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helios.catalog.names import TableName
from helios.spark.diff.rows import Comparison, Side, compare_rows
from helios.spark.iceberg.tables import load_table
from helios.table import compared_columns, states
from helios.table.states import RowDiff, State

pytestmark = pytest.mark.promise("diff")

MODES = ("delete", "update", "merge")
CASES = int(os.environ.get("DIFF_CASES", "2"))


def side(world: Any, state: State) -> Side:
    _, namespace, name = state.table.name.split(".")
    return Side(TableName(world.catalog, (namespace,), name), state.snapshot)


def compared(world: Any, before: State, after: State, *keys: str, samples: int = 100) -> RowDiff:
    """The command's way: nothing is read where the files are the same."""
    by = states.row_key_columns(before, after, keys)
    same = before.same_table(after)
    if same and states.same_files(before, after):
        return RowDiff()
    fields = compared_columns.fields_to_read(before, after)
    how = Comparison(columns=fields, keys=by, same_table=same, samples=samples)
    return compare_rows(world.spark, side(world, before), side(world, after), how)


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def make(
    world: Any, name: str, version: int = 2, mode: str = "copy-on-write", columns: str = "id INT, v STRING"
) -> str:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.db")
    modes = ", ".join(f"'write.{do}.mode'='{mode}'" for do in MODES)
    world.sql(
        f"CREATE TABLE local.db.{name} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='{version}', {modes})"
    )
    return f"db.{name}"


def delete_by_values(world: Any, name: str, column: str, value: str) -> None:
    """An equality delete, as Flink writes it."""
    jvm: Any = world.spark._jvm
    table: Any = load_table(world.spark, TableName(world.catalog, ("db",), name.partition(".")[2]))
    assert table is not None
    id = int(table.schema().findField(column).fieldId())
    ids = world.spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = id
    path = f"{str(table.location()).removeprefix('file:')}/data/equality.parquet"
    schema = pa.schema([pa.field(column, pa.string(), metadata={"PARQUET:field_id": str(id)})])
    pq.write_table(pa.table({column: [value]}, schema=schema), path)
    file = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
    file = file.withPath(path).withFileSizeInBytes(os.path.getsize(path)).withRecordCount(1).build()
    table.newRowDelta().addDeletes(file).commit()


# drawn histories


@dataclass
class Model:
    """A table as plain rows: each state has the columns, by the number of their making, and the rows by these numbers.

    Attributes:
        world: Where the table is.
        name: Its name.
        columns: The columns now: their number and name.
        rows: The rows now.
        states: The states so far: the snapshot, its columns, its rows.
    """

    world: Any
    name: str
    columns: dict[int, str] = field(default_factory=lambda: {0: "id", 1: "v"})
    rows: list[dict[int, Any]] = field(default_factory=list)
    states: list[tuple[int | None, dict[int, str], list[dict[int, Any]]]] = field(default_factory=list)
    made: int = 2

    def do(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])
        current = self.world.load(self.name).current_snapshot()
        snapshot = current.id if current else None
        if not self.states or self.states[-1][0] != snapshot:
            self.states.append((snapshot, dict(self.columns), [dict(row) for row in self.rows]))

    def _sql(self, text: str) -> None:
        self.world.sql(text.format(t=f"local.{self.name}"))

    def _values(self, rows: list[tuple[int, str | None]]) -> str:
        shown = ", ".join(f"({id}, {'CAST(NULL AS STRING)' if v is None else repr(v)})" for id, v in rows)
        return f"(SELECT col1 AS i, col2 AS w FROM VALUES {shown})"

    @property
    def _names(self) -> tuple[str, str]:
        return self.columns[0], self.columns[1]

    def append(self, rows: list[tuple[int, str | None]]) -> None:
        i, v = self._names
        self._sql(f"INSERT INTO {{t}} ({i}, {v}) SELECT i, w FROM {self._values(rows)}")
        self.rows += [{0: id, 1: value} for id, value in rows]

    def delete(self, id: int) -> None:
        self._sql(f"DELETE FROM {{t}} WHERE {self.columns[0]} = {id}")
        self.rows = [row for row in self.rows if row[0] != id]

    def upsert(self, rows: list[tuple[int, str | None]]) -> None:
        given = dict(rows)
        i, v = self._names
        self._sql(
            f"MERGE INTO {{t}} t USING {self._values(list(given.items()))} s ON t.{i} = s.i "
            f"WHEN MATCHED THEN UPDATE SET t.{v} = s.w WHEN NOT MATCHED THEN INSERT ({i}, {v}) VALUES (s.i, s.w)"
        )
        there = {row[0] for row in self.rows}
        self.rows = [{**row, 1: given.get(row[0], row.get(1))} for row in self.rows]
        self.rows += [{0: id, 1: value} for id, value in given.items() if id not in there]

    def overwrite(self, rows: list[tuple[int, str | None]]) -> None:
        source = self.world.spark.sql(
            f"SELECT i AS {self.columns[0]}, w AS {self.columns[1]} FROM {self._values(rows)}"
        )
        for column in self.columns.values():
            if column not in source.columns:
                source = source.selectExpr("*", f"CAST(NULL AS INT) AS {column}")
        source.writeTo(f"local.{self.name}").overwrite(_true())
        self.rows = [{0: id, 1: value} for id, value in rows]

    def compact(self) -> None:
        self.world.compact(self.name)

    def rename(self, column: int) -> None:
        name = f"n{self.made}"
        self._sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.columns[column]} TO {name}")
        self.columns[column], self.made = name, self.made + 1

    def add(self, value: int) -> None:
        number, self.made = self.made, self.made + 1
        self._sql(f"ALTER TABLE {{t}} ADD COLUMN c{number} INT")
        self.columns[number] = f"c{number}"
        if self.rows:
            self._sql(f"UPDATE {{t}} SET c{number} = {value} WHERE {self.columns[0]} <= 2")
            self.rows = [{**row, number: value} if row[0] <= 2 else row for row in self.rows]

    def drop(self) -> None:
        extra = [number for number in self.columns if number > 1]
        if extra:
            self._sql(f"ALTER TABLE {{t}} DROP COLUMN {self.columns.pop(extra[0])}")


def _true() -> Any:
    from pyspark.sql import functions as F

    return F.lit(True)


ROWS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", None])), min_size=1, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("upsert"), ROWS),
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(st.just("delete"), st.integers(1, 4)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("rename"), st.integers(0, 1)),
    st.tuples(st.just("add"), st.integers(0, 9)),
    st.tuples(st.just("drop")),
)
TABLES: list[str] = []


@pytest.mark.cases(landing=("2-mor", "3-mor"))
@pytest.mark.parametrize(("version", "mode"), [(2, "cow"), (2, "mor"), (3, "cow"), (3, "mor")], ids=str)
def test_drawn_histories_differ_as_multisets(world: Any, version: int, mode: str) -> None:
    how = {"cow": "copy-on-write", "mor": "merge-on-read"}[mode]

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize="DIFF_CASES" not in os.environ,
        database=None,
        phases=[Phase.generate],  # a shrunk history would take minutes more
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=st.lists(STEPS, min_size=3, max_size=7), ends=st.lists(st.integers(0, 9), min_size=6, max_size=6))
    def check(steps: list[tuple[Any, ...]], ends: list[int]) -> None:
        TABLES.append("t")
        model = Model(world, make(world, f"t{len(TABLES)}", version, how))
        model.do(("append", [(1, "a"), (1, "a"), (2, None)]))
        for step in steps:
            model.do(step)
        table = world.load(model.name)
        for at in range(0, len(ends), 2):
            first, second = (model.states[end % len(model.states)] for end in ends[at : at + 2])
            compare(world, table, first, second)
        last = model.states[-1]
        compare(world, table, model.states[0], (None, model.columns, last[2]))

    check()


def compare(world: Any, table: Any, first: Any, second: Any) -> None:
    before, after = states.state_at(table, first[0]), states.state_at(table, second[0])
    columns = second[1]
    assert compared_columns.compared_columns(before, after) == list(columns.values())
    old, new = (Counter(tuple(row.get(number) for number in columns) for row in rows) for rows in (first[2], second[2]))
    found = compared(world, before, after)
    assert (bag(found.sample_added), bag(found.sample_removed)) == (new - old, old - new)
    assert (found.added, found.removed, found.changed) == ((new - old).total(), (old - new).total(), 0)
    keyed = compared(world, before, after, columns[0])
    plus, minus = new - old, old - new
    keys = {
        row[0]
        for row in plus
        if sum(n for r, n in plus.items() if r[0] == row[0]) == sum(n for r, n in minus.items() if r[0] == row[0]) == 1
    }
    changed = {row[0]: row for row in plus if row[0] in keys}
    assert {tuple(one.values()) for _, one in keyed.sample_changed} == set(changed.values())
    assert {tuple(one.values()) for one, _ in keyed.sample_changed} == {row for row in minus if row[0] in keys}
    assert keyed.changed == len(keys)
    assert bag(keyed.sample_added) == Counter({row: n for row, n in plus.items() if row[0] not in keys})
    assert bag(keyed.sample_removed) == Counter({row: n for row, n in minus.items() if row[0] not in keys})
    renamed = {c.after: c.before for c in compared_columns.column_changes(before, after) if c.change == "renamed"}
    assert renamed == {
        name: first[1][number] for number, name in columns.items() if number in first[1] and first[1][number] != name
    }


@pytest.mark.short
def test_rows_count_as_often_as_they_are_there_and_a_compaction_is_no_difference(world: Any) -> None:
    name = make(world, "t", 3, "merge-on-read")
    world.sql(f"INSERT INTO local.{name} VALUES (1, 'a'), (1, 'a'), (1, 'a'), (2, 'b'), (NULL, 'n')")
    first = states.state_at(world.load(name), None)
    world.sql(f"DELETE FROM local.{name} WHERE id = 1")
    world.sql(f"INSERT INTO local.{name} VALUES (1, 'a'), (3, 'c')")
    world.sql(f"UPDATE local.{name} SET v = 'B' WHERE id = 2 OR id IS NULL")
    world.sql(f"ALTER TABLE local.{name} RENAME COLUMN v TO w")
    before = world.load(name).current_snapshot().id
    world.compact(name)
    now = states.state_at(world.load(name), None)
    found = compared(world, first, now, "id")
    assert (found.added, found.removed, found.changed) == (2, 3, 1)
    assert bag(found.sample_removed) == {(1, "a"): 2, (None, "n"): 1}, "a null is no key"
    assert bag(found.sample_added) == {(3, "c"): 1, (None, "B"): 1}
    assert found.sample_changed == [({"id": 2, "w": "b"}, {"id": 2, "w": "B"})]
    assert not compared(world, states.state_at(world.load(name), before), now).differs
    few = compared(world, first, now, "id", samples=1)
    assert (few.removed, len(few.sample_removed), len(few.sample_changed)) == (3, 1, 1)


def test_a_file_that_both_states_have_is_not_read(world: Any) -> None:
    name = make(world, "t")
    world.sql(f"INSERT INTO local.{name} VALUES (1, 'a')")
    [kept] = world.sql(f"SELECT file_path FROM local.{name}.files")
    world.sql(f"INSERT INTO local.{name} VALUES (2, 'b')")
    first = states.state_at(world.load(name), None)
    world.sql(f"INSERT INTO local.{name} VALUES (3, 'c')")
    os.remove(kept[0].removeprefix("file:"))
    now = states.state_at(world.load(name), None)
    found = compared(world, states.state_before(now), now)
    assert (found.files, bag(found.sample_added)) == (1, {(3, "c"): 1})
    assert states.state_before(now).snapshot == first.snapshot


def test_two_tables_are_compared_by_name_in_the_wider_type(world: Any) -> None:
    one = make(world, "one", columns="id INT, v DECIMAL(8, 2), w STRING, s STRUCT<a: INT>, only STRING")
    other = make(world, "other", 3, columns="s STRUCT<a: INT>, id BIGINT, v DECIMAL(10, 2), w INT, more STRING")
    world.sql(f"INSERT INTO local.{one} VALUES (1, 1.50, 'x', named_struct('a', 1), 'o'), (2, 2, 'y', NULL, 'o')")
    world.sql(f"INSERT INTO local.{other} VALUES (named_struct('a', 1), 1, 1.50, 7, 'm'), (NULL, 2, 2.01, 7, 'm')")
    before, after = (states.state_at(world.load(name), None) for name in (one, other))
    found = compared(world, before, after, "id")
    assert compared_columns.incomparable_columns(before, after) == ["w"]
    assert (found.added, found.removed, found.changed) == (0, 0, 1)
    [(old, new)] = found.sample_changed
    assert (old["id"], str(old["v"]), str(new["v"])) == (2, "2.00", "2.01")


def test_values_that_spark_would_group_alike_differ(world: Any) -> None:
    name = make(world, "t", columns="id INT, f DOUBLE, m MAP<STRING, DOUBLE>, b BINARY, t TIMESTAMP")
    row = "(1, {}, map('k', 1D), X'01', TIMESTAMP '2026-01-01 09:00:00Z')"
    zero, other, none = (row.format(value) for value in ("0.0D", "-0.0D", "double('NaN')"))
    world.sql(f"INSERT INTO local.{name} VALUES {zero}, {none}")
    first = states.state_at(world.load(name), None)
    world.sql(f"INSERT OVERWRITE local.{name} VALUES {other}, {none}")
    found = compared(world, first, states.state_at(world.load(name), None))
    assert (found.added, found.removed) == (1, 1)
    [added] = found.sample_added
    assert (added["b"], added["t"], added["m"]) == ("01", "2026-01-01T09:00:00+00:00", {"k": 1.0})


def test_deletes_by_a_column_that_is_gone_still_count(world: Any) -> None:
    name = make(world, "t", columns="id INT, gone STRING, v STRING")
    world.sql(f"INSERT INTO local.{name} VALUES (1, 'x', 'a'), (2, 'y', 'b')")
    first = states.state_at(world.load(name), None)
    delete_by_values(world, name, "gone", "x")
    world.sql(f"ALTER TABLE local.{name} DROP COLUMN gone")
    now = states.state_at(world.load(name), None)
    found = compared(world, first, now)
    assert (found.removed, found.added, bag(found.sample_removed)) == (1, 0, {(1, "a"): 1})
