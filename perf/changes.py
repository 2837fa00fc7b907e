"""Row-level changes beside a copy in plain Python: prints how many rows differ, which must be 0.

    python perf/changes.py --commits 200

Each commit inserts, updates, deletes or merges random rows, deletes a partition, adds a column, or compacts the table.
Now and then the changes since the last look, of 1 to 25 commits, are read as one range and replayed, commit by commit,
onto a copy; a change that the copy cannot take counts as a mismatch, as does every row that the copy and the table do
not both have. Rows are compared as multisets: many are there twice, some keys are null, and their values hold nulls,
NaN, -0.0 and maps. With `--each` the copy is compared with the table's state after every commit of a range.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from helios import Catalog, Iceberg
from helios.catalog.conf import spark_conf
from helios.catalog.names import TableName
from helios.config import load
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.spark.changelog import read_changes
from helios.sources.iceberg.spark.snapshot import source_table
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.session import session

Rows: TypeAlias = "Counter[tuple[Any, ...]]"

LONGEST = 25
FIRST = 200
"""Rows of the first commit."""


@dataclass(frozen=True)
class Kind:
    """How a table stores changed rows, and the keys by which they are paired."""

    version: int
    mode: str
    keys: tuple[str, ...] = ()


KINDS = {
    "cow1": Kind(1, "copy-on-write"),
    "cow2": Kind(2, "copy-on-write"),
    "cow3": Kind(3, "copy-on-write"),
    "mor2": Kind(2, "merge-on-read", ("id",)),
    "mor3": Kind(3, "merge-on-read"),
}
ROW = (
    "SELECT {id} AS id, element_at(array('a', 'b', NULL), 1 + int(pmod(n * 7, 3))) AS name, "
    "element_at(array(0D, -0D, double('NaN'), 1.5D, NULL), 1 + int(pmod(n * {salt}, 5))) AS amount, "
    "if(pmod(n, 3) = 0, NULL, map('x', -0D, 'y', double(pmod(n, 2)))) AS tags, int(pmod(n, 4)) AS part "
    "FROM (SELECT id AS n FROM range({low}, {high}))"
)


class Writer:
    """Makes random commits.

    Args:
        spark: The session.
        table: Its name in SQL.
        kind: How it is stored.
        seed: Of the random choices.
    """

    def __init__(self, spark: SparkSession, table: str, kind: Kind, seed: int) -> None:
        self.spark = spark
        self.table = table
        self.rng = random.Random(seed)
        self.made: Counter[str] = Counter()
        self.added = 0
        modes = ", ".join(f"'write.{do}.mode'='{kind.mode}'" for do in ("delete", "update", "merge"))
        spark.sql(
            f"CREATE TABLE {table} (id BIGINT, name STRING, amount DOUBLE, tags MAP<STRING, DOUBLE>, part INT) "
            f"USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version'='{kind.version}', {modes})"
        )
        self._insert(FIRST)

    def commit(self) -> None:
        """Does something random; when no row is concerned, no commit is made."""
        doing = self.rng.choices(list(DOING), [share for share, _ in DOING.values()])[0]
        DOING[doing][1](self)
        self.made[doing] += 1

    def _rows(self, count: int) -> str:
        low = self.rng.randrange(150)
        id = "if(pmod(n, 10) = 0, NULL, n)"
        return ROW.format(id=id, low=low, high=low + count, salt=self.rng.randrange(1, 5))

    def _insert(self, count: int | None = None) -> None:
        more = "".join(f", string(id) AS more_{i}" for i in range(self.added))
        rows = self._rows(count or self.rng.randrange(1, 40))
        self.spark.sql(f"INSERT INTO {self.table} SELECT *{more} FROM ({rows})")

    def _some(self) -> str:
        return f"pmod(coalesce(id, 3), {self.rng.randrange(5, 40)}) = {self.rng.randrange(5)}"

    def _update(self) -> None:
        change = self.rng.choice(["amount = amount + 1", "amount = -amount", "id = id + 1", "tags = map('x', 0D)"])
        self.spark.sql(f"UPDATE {self.table} SET {change} WHERE {self._some()}")

    def _delete(self) -> None:
        self.spark.sql(f"DELETE FROM {self.table} WHERE {self._some()}")

    def _delete_partition(self) -> None:
        self.spark.sql(f"DELETE FROM {self.table} WHERE part = {self.rng.randrange(4)}")

    def _merge(self) -> None:
        more = "".join(f", 'm' AS more_{i}" for i in range(self.added))
        rows = (
            "SELECT id, any_value(name) AS name, 1D AS amount, CAST(NULL AS MAP<STRING, DOUBLE>) AS tags, "
            f"min(part) AS part{more} FROM ({self._rows(30)}) GROUP BY id"
        )
        self.spark.sql(
            f"MERGE INTO {self.table} t USING ({rows}) s ON t.id = s.id WHEN MATCHED AND pmod(s.id, 3) = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT *"
        )

    def _compact(self) -> None:
        catalog, _, name = self.table.partition(".")
        rewrite = f"CALL {catalog}.system.rewrite_data_files(table => '{name}'"
        self.spark.sql(f"{rewrite}, options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false'))")

    def _add_column(self) -> None:
        if self.added < 3:
            self.spark.sql(f"ALTER TABLE {self.table} ADD COLUMN more_{self.added} STRING")
            self.added += 1
        self._insert()


DOING: dict[str, tuple[int, Callable[[Writer], None]]] = {
    "insert": (30, Writer._insert),
    "update": (20, Writer._update),
    "delete": (14, Writer._delete),
    "partition deleted": (3, Writer._delete_partition),
    "merge": (18, Writer._merge),
    "compaction": (10, Writer._compact),
    "column added": (5, Writer._add_column),
}
"""What a commit may do, and how often among a hundred."""


class Copy:
    """The table as its changes tell it.

    Args:
        spark: The session.
        read: The table as a source.
        keys: The keys by which updates are paired.
    """

    def __init__(self, spark: SparkSession, read: ReadPlan, keys: tuple[str, ...]) -> None:
        self.spark = spark
        self.read = read
        self.keys = keys
        self.at: int | None = None
        self.rows: Rows = Counter()
        self.changes = self.ranges = self.commits = 0
        self.wrong = 0

    def follow(self, *, each: bool) -> None:
        """Replays what has changed since the last time."""
        table = source_table(self.spark, self.read)
        head = table.currentSnapshot()
        past = []
        while head is not None and head.snapshotId() != self.at:
            past.append(head)
            parent = head.parentId()
            head = table.snapshot(parent) if parent is not None else None
        if not past:
            return
        with scan_task_scope():
            df = read_changes(self.spark, self.read, self.at, past[0].snapshotId(), self.keys)
            names = df.columns[:-3]
            rows = df.collect()
        self._widen(len(names))
        found: dict[int, list[Any]] = {}
        for row in rows:
            found.setdefault(row["_commit_snapshot_id"], []).append(row)
        for commit in reversed(past):
            id = int(commit.snapshotId())
            changes = found.pop(id, [])
            if changes and str(commit.operation()) == "replace":
                self._complain(f"the compaction {id} has {len(changes)} changes", len(changes))
            self._replay(id, changes, len(names))
            if each or commit is past[0]:
                self._compare(id, names)
        if found:
            self._complain(
                f"changes of {list(found)}, which are no commits of the range", sum(map(len, found.values()))
            )
        self.at = int(past[0].snapshotId())
        self.ranges += 1
        self.commits += len(past)
        self.changes += len(rows)

    def _replay(self, id: int, changes: list[Any], width: int) -> None:
        kinds = Counter(row["_change_type"] for row in changes)
        if kinds["UPDATE_BEFORE"] != kinds["UPDATE_AFTER"]:
            self._complain(f"commit {id} has {dict(kinds)}", 1)
        signed = [(frozen(row[:width]), row["_change_type"] in ("INSERT", "UPDATE_AFTER")) for row in changes]
        gone = Counter(row for row, there in signed if not there)
        missing = gone - self.rows
        if missing:
            self._complain(f"commit {id} takes away rows that are not there: {missing}", missing.total())
        self.rows = self.rows - gone + Counter(row for row, there in signed if there)

    def _compare(self, id: int, names: list[str]) -> None:
        state = self.spark.sql(f"SELECT * FROM {self.read.table.sql if self.read.table else ''} VERSION AS OF {id}")
        there = Counter(frozen((*row, *[None] * (len(names) - len(row)))) for row in state.collect())
        apart = (there - self.rows) + (self.rows - there)
        if apart:
            self._complain(
                f"after commit {id} {apart.total()} rows differ: {dict(apart.most_common(5))}", apart.total()
            )

    def _widen(self, width: int) -> None:
        """A column that was added is null in the rows of before."""
        self.rows = Counter({(*row, *[None] * (width - len(row))): count for row, count in self.rows.items()})

    def _complain(self, what: str, rows: int) -> None:
        print(what, flush=True)
        self.wrong += rows


def frozen(value: Any) -> Any:
    """A value that equals only its like: NaN itself, and -0.0 not 0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return tuple(sorted((key, frozen(inner)) for key, inner in value.items()))
    return tuple(map(frozen, value)) if isinstance(value, (tuple, list)) else value


def compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession) -> int:
    """Runs the commits, and returns 1 when a copy differs from its table."""
    catalog.create_namespace("perf")
    return max(_compare(catalog, given, spark, name) for name in given.kinds)


def _compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession, name: str) -> int:
    began, reading = time.monotonic(), 0.0
    kind = KINDS[name]
    writer = Writer(spark, f"{catalog.name}.perf.changes_{name}", kind, given.seed)
    source = Iceberg.source(f"perf.changes_{name}", catalog=catalog)
    read = ReadPlan(source=source, table=TableName(catalog, ("perf",), f"changes_{name}"))
    copy = Copy(spark, read, kind.keys)
    until = 0
    for number in range(given.commits):
        writer.commit()
        until -= 1
        if until <= 0 or number == given.commits - 1:
            began_reading = time.monotonic()
            copy.follow(each=given.each)
            reading += time.monotonic() - began_reading
            until = writer.rng.randint(1, LONGEST)
    done = ", ".join(f"{count} {what}" for what, count in sorted(writer.made.items()))
    print(
        f"{kind.mode} v{kind.version}: {copy.commits} commits ({done}), {copy.ranges} ranges, "
        f"{copy.changes:,} changes, {copy.rows.total():,} rows at the end; {copy.wrong} mismatches; "
        f"{time.monotonic() - began:.0f} s, of which {reading:.0f} s reading",
        flush=True,
    )
    return 1 if copy.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=200, help="of each kind of table")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["cow2", "mor3"])
    parser.add_argument("--each", action="store_true", help="compare after every commit, not only after every range")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        catalog = Catalog.local(path=Path(made) / ".helios")
        spark = session.start(load(Path(made)), ("iceberg", "sqlite"))
        for key, value in spark_conf(catalog).items():
            spark.conf.set(key, value)
        return compare(catalog, given, spark)


if __name__ == "__main__":
    sys.exit(main())
