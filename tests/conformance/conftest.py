"""What the conformance suite shares: the write modes, a reference for each in plain Python, and a pipeline to break.

Every mode is told as a `Case`, and every test that asks for `scene` runs once per mode. A scene is a pipeline whose
first two batches have been committed. That state is made once per mode and put back before each test: the catalog's rows,
all files, and the checkpoint.
"""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helios import Pipeline, where
from helios.spark.audit import AuditedTarget
from helios.spark.checkpoint import Checkpoint
from helios.spark.run import PipelineRun
from helios.spark.target import RoutedTarget, Site, TableTarget, Target, Work
from helios.spark.view import Transaction
from helios.spark.write import load_table

STREAMING = Path(__file__).parents[1] / "streaming" / "conftest.py"


def _load(path: Path) -> Any:
    """The streaming tests' fixtures: pytest shares a conftest only with the folders below it."""
    spec = importlib.util.spec_from_file_location("helios_streaming_fixtures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_streaming = _load(STREAMING)
shared_spark, world = _streaming.shared_spark, _streaming.world


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.streaming)


# the rows

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = "list[Row]"

COLUMNS = ("id", "part", "v", "n", "op")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("n", pa.int64()), ("op", pa.string())]
)
SPARK_SCHEMA = "id bigint, part string, v bigint, n bigint, op string"

BATCHES: tuple[Rows, ...] = (
    [(1, "a", 10, 1, "u"), (2, "b", 20, 1, "u"), (3, "a", 30, 1, "u"), (4, "b", 40, 1, "u")],
    # an update, a new key, a delete
    [(3, "a", 31, 2, "u"), (5, "b", 50, 2, "u"), (2, "b", 0, 3, "d")],
    # older than the row that is there, older than a delete, two of a key, the same row twice, a delete
    [
        *[(1, "a", 9, 0, "u"), (2, "b", 21, 2, "u"), (5, "b", 51, 4, "u"), (5, "b", 52, 3, "u")],
        *[(4, "b", 41, 3, "u"), (6, "a", 60, 3, "u"), (6, "a", 60, 3, "u"), (3, "a", 0, 4, "d")],
    ],
    # newer than a delete
    [(2, "b", 22, 5, "u"), (6, "a", 61, 4, "u"), (7, "b", 70, 4, "u")],
)
"""What the source gets, commit by commit; the first two are the scene, the third meets a failure, the last follows."""

FOREIGN: Rows = [(6, "a", 600, 3, "u"), (900, "b", 900, 99, "u")]
"""What another writer appends to the target by hand: a key, partition and part of batch 2, and one of no batch."""


# the references: the rows of the target after batches, and after what somebody else appends

Event: TypeAlias = "tuple[str, Rows]"
Reference: TypeAlias = "Callable[[list[Event]], Counter[Row]]"


def _appended(events: list[Event]) -> Counter[Row]:
    return Counter(row for _, rows in events for row in rows)


def _overwritten(events: list[Event]) -> Counter[Row]:
    """`overwrite("part = 'a'")` of a stream that is cut down to these rows."""
    state: Rows = []
    for kind, rows in events:
        if kind == "batch":
            state = [row for row in state if row[1] != "a"]
            rows = [row for row in rows if row[1] == "a"]
        state = state + rows
    return Counter(state)


def _replaced(events: list[Event]) -> Counter[Row]:
    """`overwrite()`: all that the source holds, and what was appended since."""
    state: Rows = []
    source: Rows = []
    for kind, rows in events:
        if kind == "batch":
            source = source + rows
            state = source
        else:
            state = state + rows
    return Counter(state)


def _partitions(events: list[Event]) -> Counter[Row]:
    """`partition_by("n").overwrite_partitions()`."""
    state: Rows = []
    for kind, rows in events:
        if kind == "batch":
            touched = {row[3] for row in rows}
            state = [row for row in state if row[3] not in touched]
        state = state + rows
    return Counter(state)


def _upserted(events: list[Event]) -> Counter[Row]:
    """The newest row per key by `n`; a later one wins a tie; deletes count as rows."""
    newest: dict[int, Row] = {}
    for _, rows in events:
        for row in rows:
            known = newest.get(row[0])
            if known is None or row[3] >= known[3]:
                newest[row[0]] = row
    return Counter(row for row in newest.values() if row[4] != "d")


def _without_order(events: list[Event]) -> Counter[Row]:
    return Counter(row[:3] for row in _upserted(events).elements())


def _with_order(events: list[Event]) -> Counter[Row]:
    return Counter(row[:4] for row in _upserted(events).elements())


def _versions(events: list[Event]) -> Counter[Row]:
    """Every row of a key from its `n` to the next one's, or to a delete."""
    found: dict[int, dict[int, Row]] = {}
    for _, rows in events:
        for row in rows:
            found.setdefault(row[0], {})[row[3]] = row
    versions: Rows = []
    for of_key in found.values():
        orders = sorted(of_key)
        ends = [*orders[1:], None]
        versions += [(*of_key[n][:3], n, end) for n, end in zip(orders, ends, strict=True) if of_key[n][4] != "d"]
    return Counter(versions)


def _deleted(events: list[Event]) -> Counter[Row]:
    state: Rows = []
    for kind, rows in events:
        keys = {row[0] for row in rows}
        state = [row for row in state if row[0] not in keys] if kind == "batch" else state + [row[:2] for row in rows]
    return Counter(state)


def _summed(events: list[Event]) -> Counter[Row]:
    state: Counter[int] = Counter()
    for _, rows in events:
        for row in rows:
            state[row[0]] += row[2]
    return Counter(state.items())


# the modes


@dataclass(frozen=True, kw_only=True)
class Case:
    """One write mode.

    Attributes:
        sink: Gives the sink its mode.
        reference: What the target then holds.
        columns: The columns of the target, in the reference's order.
        steps: A condition on the stream.
        followed: Whether the source is followed, or read whole by each run.
        made: SQL that makes the target by hand, of `{table}`.
        before: Rows that are in it before the first batch.
        by_hand: What another writer appends, as SQL on a row of the source's columns.
        parts: The tables that it writes: a name's ending, and which of the rows are there.
        branch: The branch that it writes.
        yields: Whether a conflict with another writer is tried again, or stops the run.
        seam: Where a batch becomes visible.
        nth: Which call of that is a batch's last.
    """

    sink: Callable[[Any], Any]
    reference: Reference = _appended
    columns: tuple[str, ...] = COLUMNS
    steps: str = "true"
    followed: bool = True
    made: str = ""
    before: Rows = ()  # type: ignore[assignment]
    by_hand: tuple[str, ...] = COLUMNS
    parts: tuple[str, ...] = ("",)
    branch: str | None = None
    yields: bool = True
    seam: tuple[Any, str] = (Transaction, "commit")
    nth: int = 1


MERGE = """
MERGE INTO target USING (SELECT id, sum(v) AS v FROM batch GROUP BY id) AS news ON target.id = news.id
WHEN MATCHED THEN UPDATE SET v = target.v + news.v
WHEN NOT MATCHED THEN INSERT (id, v) VALUES (news.id, news.v)
"""

UPSERT = {"order_by": "n", "delete_when": "op = 'd'"}

CASES: dict[str, Case] = {
    "append": Case(sink=lambda s: s.append()),
    "overwrite": Case(sink=lambda s: s.overwrite(), reference=_replaced, followed=False, yields=False),
    "overwrite-filter": Case(
        sink=lambda s: s.overwrite("part = 'a'"), reference=_overwritten, steps="part = 'a'", yields=False
    ),
    "overwrite-partitions": Case(
        sink=lambda s: s.partition_by("n").overwrite_partitions(), reference=_partitions, yields=False
    ),
    "upsert": Case(
        sink=lambda s: s.upsert("id", **UPSERT),
        reference=_without_order,
        columns=("id", "part", "v"),
        by_hand=("id", "part", "v"),
    ),
    "upsert-stored-order": Case(
        sink=lambda s: s.upsert("id", **UPSERT),
        reference=_with_order,
        columns=("id", "part", "v", "n"),
        made="CREATE TABLE {table} (id bigint, part string, v bigint, n bigint) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')",
        by_hand=("id", "part", "v", "n"),
    ),
    "upsert-history": Case(
        sink=lambda s: s.upsert("id", history=True, **UPSERT),
        reference=_versions,
        columns=("id", "part", "v", "valid_from", "valid_to"),
        by_hand=("id", "part", "v", "n", "CAST(NULL AS bigint)"),
    ),
    "delete": Case(
        sink=lambda s: s.delete("id"),
        reference=_deleted,
        columns=("id", "part"),
        made="CREATE TABLE {table} (id bigint, part string) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')",
        before=[(i, part) for i in range(1, 10) for part in "ab"],
        by_hand=("id", "part"),
    ),
    "merge-sql": Case(
        sink=lambda s: s.merge_sql(MERGE),
        reference=_summed,
        columns=("id", "v"),
        made="CREATE TABLE {table} (id bigint, v bigint) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'copy-on-write')",
        by_hand=("id", "v"),
    ),
    "branch": Case(
        sink=lambda s: s.branch("aside"),
        made="CREATE TABLE {table} (id bigint, part string, v bigint, n bigint, op string) USING iceberg",
        before=[(800, "b", 8, 8, "u")],
        branch="aside",
    ),
    "route": Case(sink=lambda s: s.route(by="part"), parts=("_a", "_b"), nth=2),
    "audit": Case(
        sink=lambda s: s.audit({"whole": "count(*) = count(id)"}).publish(), seam=(AuditedTarget, "_publish")
    ),
}


# a pipeline to break


class Scene:
    """A pipeline in one write mode, whose first two batches have been committed.

    Args:
        case: The mode.
        world: Its catalog and session.
    """

    def __init__(self, name: str, case: Case, world: Any) -> None:
        self.name = name
        self.case = case
        self.world = world
        self.tables = [f"a.t{part}" for part in case.parts]
        world.catalog.create_namespace("a")
        world.catalog.create_table("a.s", SCHEMA)
        if case.made:
            world.sql(case.made.format(table="local.a.t"))
            if case.before:
                world.sql(f"INSERT INTO local.a.t VALUES {', '.join(map(repr, case.before))}")
        source = world.source("a.s")
        source = source.incremental(poll=1) if case.followed else source
        self.pipeline: Pipeline = source >> where(case.steps) >> case.sink(world.sink("a.t"))
        for number in (0, 1):
            self.feed(number)
            self.run()
        self._keep()

    # its state

    @property
    def _catalog_file(self) -> Path:
        [found] = (self.world.folder / ".helios").rglob("*.db")
        return found

    def _keep(self) -> None:
        with sqlite3.connect(self._catalog_file) as connection:
            self._pointers = connection.execute("SELECT * FROM iceberg_tables").fetchall()
        connection.close()
        shutil.copytree(self.world.folder / ".helios", self.world.folder / "kept")

    def restore(self) -> None:
        """Puts the state after the first two batches back."""
        checkpoint = self.world.checkpoint(self.pipeline)
        shutil.rmtree(checkpoint, ignore_errors=True)
        live = self.world.folder / ".helios"
        # The catalog's file is open in the JVM: its rows are put back, not the file.
        shutil.copytree(
            self.world.folder / "kept", live, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db", "*.db-*")
        )
        with sqlite3.connect(self._catalog_file) as connection:
            connection.execute("DELETE FROM iceberg_tables")
            marks = ", ".join("?" * len(self._pointers[0]))
            connection.executemany(f"INSERT INTO iceberg_tables VALUES ({marks})", self._pointers)
        connection.close()
        self.world.events.clear()

    # what happens to it

    def feed(self, number: int) -> None:
        """Commits a batch's rows to the source."""
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in BATCHES[number]]
        self.world.catalog.load("a.s").iceberg.append(pa.Table.from_pylist(rows, schema=SCHEMA))

    def run(self) -> PipelineRun:
        run: PipelineRun = self.world.run(self.pipeline)
        return run

    def forget(self, number: int) -> None:
        """Loses a batch's entry of Spark's commit log."""
        if self.case.followed:
            commits = self.world.checkpoint(self.pipeline) / "commits"
            (commits / str(number)).unlink()
            (commits / f".{number}.crc").unlink(missing_ok=True)

    def append_by_hand(self, rows: Rows = FOREIGN) -> None:
        """Another writer's commit, through Spark SQL."""
        for table, mine in self._parted(rows):
            values = ", ".join(map(repr, mine))
            target = f"local.{table}" + (f".branch_{self.case.branch}" if self.case.branch else "")
            columns = ", ".join(self.case.by_hand)
            self.world.sql(f"INSERT INTO {target} SELECT {columns} FROM VALUES {values} AS x({', '.join(COLUMNS)})")

    def _parted(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        for table, part in zip(self.tables, self.case.parts, strict=True):
            yield table, [row for row in rows if not part or row[1] == part[1:]]

    def compact(self) -> None:
        branch = f", branch => '{self.case.branch}'" if self.case.branch else ""
        for table in self.tables:
            [done] = self.world.sql(
                f"CALL local.system.rewrite_data_files(table => '{table}', "
                f"options => map('rewrite-all', 'true'){branch})"
            )
            assert done["rewritten_data_files_count"] > 0

    def expire(self) -> None:
        """Expires all snapshots but the current one and those of branches, with their files."""
        for table in self.tables:
            self.table(table).expireSnapshots().expireOlderThan(2**42).retainLast(1).commit()
            refs = self.world.catalog.load(table).iceberg.metadata.refs
            assert {s.id for s in self.world.catalog.load(table).snapshots()} == {r.snapshot_id for r in refs.values()}

    def at_commit(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        """Does something right before or right after the next batch becomes visible; of routed tables, the last one."""
        owner, name = self.case.seam
        real, calls = getattr(owner, name), count(1)

        def commit(*arguments: Any) -> Any:
            if next(calls) != self.case.nth:
                return real(*arguments)
            before()
            made = real(*arguments)
            after()
            return made

        monkeypatch.setattr(owner, name, commit)

    # another driver

    def driver(self) -> Target:
        """What writes batches in a process that believes the pipeline to be its own; no lease stops it."""
        plan = self.world.plan(self.pipeline)
        checkpoint = Checkpoint(self.world.spark, plan.checkpoint)
        identity = checkpoint.identity()
        assert identity is not None
        site = Site(plan=plan, spark=self.world.spark, checkpoint=checkpoint, checkpoint_id=identity.id)
        if plan.write.sink.routing is not None:
            return RoutedTarget(site)
        made = AuditedTarget if plan.write.sink.audits else TableTarget
        return made(site, plan.write.table, self.table("a.t"), plan.write.sink.branch_name)

    def work(self, number: int) -> Work:
        """A batch in such a driver's hands."""
        rows = [row for row in BATCHES[number] if self.case.steps == "true" or row[1] == "a"]
        if not self.case.followed:
            rows = [row for batch in BATCHES[: number + 1] for row in batch]
        df = self.world.spark.createDataFrame(rows, SPARK_SCHEMA)
        return Work(df=df, number=number, position={"sources": [{"source": "local.a.s", "to": number}]}, planned=True)

    # what it holds

    def table(self, name: str) -> Any:
        """Iceberg's own table object."""
        plan = self.world.plan(self.pipeline)
        from dataclasses import replace

        return load_table(self.world.spark, replace(plan.write.table, table=name.removeprefix("a.")))

    def rows(self) -> Counter[Row]:
        """The target's rows as a multiset, read by PyIceberg, from all its tables."""
        found: Counter[Row] = Counter()
        for name in self.tables:
            table = self.world.catalog.load(name).iceberg
            snapshot = table.metadata.snapshot_by_name(self.case.branch) if self.case.branch else None
            arrow = table.scan(snapshot_id=snapshot.snapshot_id if snapshot else None).to_arrow()
            found += Counter(zip(*(arrow[c].to_pylist() for c in self.case.columns), strict=True))
        return found

    def expected(self, *events: int | str) -> Counter[Row]:
        """What the target should hold after batches by number, and after "others"."""
        told = [("batch", BATCHES[e]) if isinstance(e, int) else ("others", FOREIGN) for e in events]
        before = [("others", list(self.case.before))] if self.case.before else []
        return self.case.reference(before + told)

    def holds(self, *events: int | str) -> None:
        assert self.rows() == self.expected(*events)
        if self.case.branch:
            assert self.world.rows("a.t") == Counter(self.case.before)

    def snapshots(self) -> int:
        return sum(len(self.world.catalog.load(table).snapshots()) for table in self.tables)

    def main(self) -> list[Any]:
        """What the target shows: the newest snapshot of each table's main, or of the branch."""
        metadata = (self.world.catalog.load(table).iceberg.metadata for table in self.tables)
        return [found.snapshot_by_name(self.case.branch or "main") for found in metadata]

    def everything(self) -> dict[str, bytes]:
        """Every file of the catalog, its tables and the checkpoint, but for the lease and the source's."""
        folder = self.world.folder / ".helios"
        paths = [path for path in folder.rglob("*") if path.is_file() and "lease" not in path.name]
        return {str(path): path.read_bytes() for path in paths if ".db-" not in path.name}

    def throw(self, kind: str) -> None:
        java_error(self.world.spark, kind)

    def files(self) -> set[str]:
        """The data and delete files on the storage, whether or not a snapshot names them."""
        folder = self.world.folder / ".helios"
        return {path.name for path in folder.rglob("data/**/*.parquet")}


def java_error(spark: SparkSession, name: str) -> None:
    """Raises a Java exception, as a catalog's client would."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    made = {
        "CommitStateUnknownException": lambda: iceberg.exceptions.CommitStateUnknownException(
            jvm.java.lang.RuntimeException("connection reset")
        ),
        "CommitFailedException": lambda: iceberg.exceptions.CommitFailedException(
            jvm.java.lang.RuntimeException("conflict"), "the request was sent twice", None
        ),
        "RuntimeException": lambda: jvm.java.lang.RuntimeException("connection reset"),
    }
    iceberg.relocated.com.google.common.base.Throwables.throwIfUnchecked(made[name]())
    raise AssertionError(f"{name} is not thrown")


@pytest.fixture(scope="session")
def scenes() -> dict[str, Scene]:
    return {}


@pytest.fixture
def scene(
    name: str, scenes: dict[str, Scene], shared_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    if name not in scenes:
        scenes[name] = Scene(name, CASES[name], _streaming.World(shared_spark, tmp_path_factory.mktemp(name)))
    found = scenes[name]
    found.restore()
    yield found
    for query in found.world.spark.streams.active:
        query.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `scene` runs for every mode, unless it names the modes itself: `@pytest.mark.parametrize("name", ...)`."""
    named = any(mark.args[0] == "name" for mark in metafunc.definition.iter_markers("parametrize"))
    if "scene" in metafunc.fixturenames and not named:
        metafunc.parametrize("name", list(CASES))
