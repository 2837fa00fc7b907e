"""What the conformance suite shares: a pipeline in each write mode, and what can befall it.

Every mode is told as a `Case` in `cases.py`, and every test that asks for `scene` runs once per mode. A scene is a
pipeline whose first two batches have been committed. That state is made once per mode and put back before each test:
the catalog's rows, all files, and the checkpoint.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helios import Pipeline, where
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.transaction import Transaction
from helios.spark.run.run import PipelineRun
from helios.spark.run.upsert_keys import keys_folder_of
from helios.spark.sinks.audit import AuditedSink
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Found, Sink
from helios.spark.sinks.records import newest_record
from helios.spark.sinks.route import RoutedSink
from helios.spark.sinks.table import TableSink
from helios.spark.steps.build import Built
from helios.table.positions import Batch, Span
from tests.conformance import cases
from tests.streaming.conftest import World, shared_spark, world

__all__ = ["shared_spark", "world"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.streaming)


# where a batch becomes visible

Around: TypeAlias = "Callable[[Callable[[], Any]], Any]"


def at_transaction(monkeypatch: pytest.MonkeyPatch, around: Around) -> None:
    """Puts something around each commit of a batch's transaction; of an audited batch, this only stages it."""
    real = Transaction.commit
    monkeypatch.setattr(Transaction, "commit", lambda self: around(lambda: real(self)))


def at_publish(monkeypatch: pytest.MonkeyPatch, around: Around, opening: Callable[[], object] = lambda: None) -> None:
    """Puts something around each commit that publishes an audited batch, and before the opening of its transaction."""
    real = AuditedSink._publish

    def publish(self: AuditedSink, *arguments: Any) -> bool:
        table = self.table
        self.table = _Table(table, around, opening)
        try:
            return real(self, *arguments)
        finally:
            self.table = table

    monkeypatch.setattr(AuditedSink, "_publish", publish)


class _Table:
    """Iceberg's table object, whose transactions commit with something around it."""

    def __init__(self, table: Any, around: Around, opening: Callable[[], object]) -> None:
        self._table = table
        self._around = around
        self._opening = opening

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def newTransaction(self) -> Any:
        self._opening()
        return _Pending(self._table.newTransaction(), self._around)


class _Pending:
    def __init__(self, transaction: Any, around: Around) -> None:
        self._transaction = transaction
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def commitTransaction(self) -> None:
        self._around(self._transaction.commitTransaction)


# another driver


@dataclass(frozen=True)
class Work:
    """A batch in a driver's hands."""

    batch: Batch
    rows: Built


@dataclass(frozen=True)
class Driver:
    """What finds and writes batches without a lease."""

    sink: Sink

    def finds(self, work: Work) -> bool:
        return isinstance(self.sink.find(work.batch), Found)

    def write(self, work: Work) -> Commit | None:
        with self.sink.stage(work.batch, work.rows) as staged:
            return self.sink.commit(staged)


# a pipeline to break


class Scene:
    """A pipeline in one write mode, whose first two batches have been committed.

    Args:
        case: The mode.
        world: Its catalog and session.
    """

    def __init__(self, name: str, case: cases.Case, world: Any) -> None:
        self.name = name
        self.case = case
        self.world = world
        self.tables = [f"a.t{part}" for part in case.parts]
        if case.native:
            (world.folder / "helios.toml").write_text('[spark]\nnative = "require"\n')
        world.catalog.create_namespace("a")
        world.catalog.create_table("a.s", cases.SCHEMA)
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
        shutil.rmtree(self.world.checkpoint(self.pipeline).parent)
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
        rows = [dict(zip(cases.COLUMNS, row, strict=True)) for row in cases.BATCHES[number]]
        self.world.catalog.load("a.s").iceberg.append(pa.Table.from_pylist(rows, schema=cases.SCHEMA))

    def run(self, **options: Any) -> PipelineRun:
        run: PipelineRun = self.world.run(self.pipeline, **options)
        return run

    def forget(self, number: int) -> None:
        """Loses a batch's entry of Spark's commit log."""
        if self.case.followed:
            commits = self.world.checkpoint(self.pipeline) / "commits"
            (commits / str(number)).unlink()
            (commits / f".{number}.crc").unlink(missing_ok=True)

    def append_by_hand(self, rows: cases.Rows = cases.FOREIGN) -> None:
        """Another writer's commit, through Spark SQL."""
        for table, mine in self._parted(rows):
            values = ", ".join(map(repr, mine))
            target = f"local.{table}" + (f".branch_{self.case.branch}" if self.case.branch else "")
            columns = ", ".join(self.case.by_hand)
            self.world.sql(
                f"INSERT INTO {target} SELECT {columns} FROM VALUES {values} AS x({', '.join(cases.COLUMNS)})"
            )

    def _parted(self, rows: cases.Rows) -> Iterator[tuple[str, cases.Rows]]:
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
        calls = count(1)

        def around(commit: Callable[[], Any]) -> Any:
            if next(calls) != len(self.tables):
                return commit()
            before()
            made = commit()
            after()
            return made

        (at_publish if self.case.audited else at_transaction)(monkeypatch, around)

    def throw(self, kind: str) -> None:
        """Raises a Java exception, as a catalog's client would."""
        jvm: Any = self.world.spark._jvm
        iceberg = jvm.org.apache.iceberg
        cause = jvm.java.lang.RuntimeException("connection reset")
        made = {
            "CommitStateUnknownException": lambda: iceberg.exceptions.CommitStateUnknownException(cause),
            "CommitFailedException": lambda: iceberg.exceptions.CommitFailedException(cause, "sent twice", None),
            "RuntimeException": lambda: cause,
        }
        iceberg.relocated.com.google.common.base.Throwables.throwIfUnchecked(made[kind]())
        raise AssertionError(f"{kind} is not thrown")

    def at_opening(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> None:
        """Does something right before the next publication takes the state of the table that it stands on."""
        calls = count()
        at_publish(monkeypatch, lambda commit: commit(), lambda: before() if next(calls) == 0 else None)

    # another driver

    def driver(self) -> Driver:
        """What writes batches in a process that believes the pipeline to be its own; no lease stops it."""
        plan = self.world.plan(self.pipeline)
        checkpoint = Checkpoint(self.world.spark, plan.checkpoint)
        identity = checkpoint.identity()
        assert identity is not None
        context = SinkContext(plan=plan, spark=self.world.spark, checkpoint=checkpoint, checkpoint_id=identity.id)
        if plan.write.sink.routing is None:
            record = newest_record(self.table("a.t"), plan.write.pipeline_names, plan.write.sink.branch_name)
            context = replace(context, keys_folder=keys_folder_of(context, identity.id, record))
        if plan.write.sink.routing is not None:
            return Driver(RoutedSink(context))
        made = AuditedSink if plan.write.sink.audits else TableSink
        return Driver(made(context, plan.write.table, self.table("a.t"), plan.write.sink.branch_name))

    def work(self, number: int) -> Work:
        """A batch in such a driver's hands."""
        rows = [row for row in cases.BATCHES[number] if self.case.steps == "true" or row[1] == "a"]
        if not self.case.followed:
            rows = [row for batch in cases.BATCHES[: number + 1] for row in batch]
        df = self.world.spark.createDataFrame(rows, cases.SPARK_SCHEMA)
        span = Span("local.a.s", None, {"snapshot_id": number}, {"source": "local.a.s", "to": number})
        return Work(Batch(number, (span,), maybe_written=True), Built(df))

    # what it holds

    def table(self, name: str) -> Any:
        """Iceberg's own table object."""
        target = self.world.plan(self.pipeline).write.table
        return load_table(self.world.spark, replace(target, table=name.removeprefix("a.")))

    def rows(self) -> Counter[cases.Row]:
        """The target's rows as a multiset, read by PyIceberg, from all its tables."""
        found: Counter[cases.Row] = Counter()
        for name in self.tables:
            table = self.world.catalog.load(name).iceberg
            snapshot = table.metadata.snapshot_by_name(self.case.branch) if self.case.branch else None
            arrow = table.scan(snapshot_id=snapshot.snapshot_id if snapshot else None).to_arrow()
            found += Counter(zip(*(arrow[c].to_pylist() for c in self.case.columns), strict=True))
        return found

    def expected(self, *events: int | str) -> Counter[cases.Row]:
        """What the target should hold after batches by number, and after "others"."""
        told = [("batch", cases.BATCHES[e]) if isinstance(e, int) else ("others", cases.FOREIGN) for e in events]
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

    def files(self) -> set[str]:
        """The data and delete files on the storage, whether or not a snapshot names them."""
        folder = self.world.folder / ".helios"
        return {path.name for path in folder.rglob("data/**/*.parquet")}


@pytest.fixture(scope="session")
def scenes() -> dict[str, Scene]:
    return {}


@pytest.fixture
def scene(
    name: str,
    scenes: dict[str, Scene],
    shared_spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    if cases.CASES[name].native:  # the workers need Polars, which the tests' Python has
        monkeypatch.setattr(shared_spark.sparkContext, "pythonExec", sys.executable)
    if name not in scenes:
        scenes[name] = Scene(name, cases.CASES[name], World(shared_spark, tmp_path_factory.mktemp(name)))
    found = scenes[name]
    found.restore()
    yield found
    for query in found.world.spark.streams.active:
        query.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `scene` runs for every mode, unless it names them: `@pytest.mark.parametrize("name", ...)`.

    `make test` has an append meet them all.
    """
    named = any(mark.args[0] == "name" for mark in metafunc.definition.iter_markers("parametrize"))
    if "scene" in metafunc.fixturenames and not named:
        modes = [pytest.param(name, marks=pytest.mark.short) if name == "append" else name for name in cases.CASES]
        metafunc.parametrize("name", modes)


@pytest.fixture(name="cases")
def _cases() -> Any:
    return cases
