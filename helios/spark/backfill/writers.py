"""Finds out which writers wrote the rows of a slice: a backfill replaces only rows that its own pipeline wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import InputError, Origin
from helios.plan.nodes import Plan
from helios.spark.backfill.slices import Slice
from helios.spark.iceberg import filters
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.tables import spark_schema
from helios.spark.iceberg.validators import COMPACTION, changes_rows
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable

LAST_CHANGED = "_last_updated_sequence_number"
"""The metadata column of format v3 with the sequence number of the commit that added or last changed a row."""
MAX_NAMED = 3
"""The maximum number of writers that an error names."""


class TargetRows:
    """The rows of a backfill's target, and their writers.

    Args:
        own: The names under which the pipeline, its replays and its backfills commit.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaTable,
        name: TableName,
        *,
        own: frozenset[str],
        trusts_expired: bool,
        where: Origin | None,
    ) -> None:
        self._spark, self._table, self._name = spark, table, name
        self._own, self._trusts_expired, self._where = own, trusts_expired, where
        self._seen: tuple[int, list[JavaSnapshot]] | None = None  # a head, and the commits of other writers up to it

    @classmethod
    def of(
        cls,
        plan: Plan,
        spark: SparkSession,
        table: JavaTable,
        names: Iterable[str],
        suffixes: Iterable[str],
        *,
        trusts_expired: bool,
    ) -> Self:
        """The rows of a pipeline's target.

        Args:
            names: The present and former names of the pipeline.
            suffixes: Suffixes of these names. Commits under a name with or without one of them are the pipeline's own.
        """
        own = frozenset(f"{name}{suffix}" for name in names for suffix in ("", *suffixes))
        where = plan.declared.sink.origin
        return cls(spark, table, plan.write.table, own=own, trusts_expired=trusts_expired, where=where)

    def rows(self, condition: str, snapshot: JavaSnapshot | None, *metadata: str) -> DataFrame | None:
        """The rows of a snapshot that meet an SQL condition, with metadata columns; None if no file can have one."""
        if snapshot is None:
            return None
        file_filter = filters.expression(self._spark, self._table, self._name.sql, [condition])
        scan = self._table.newScan().useSnapshot(int(snapshot.snapshotId()))
        same_schema = snapshot.schemaId() == self._table.schema().schemaId()  # a filter binds to the snapshot's columns
        tasks = plan_tasks(self._spark, scan.filter(file_filter) if file_filter is not None and same_schema else scan)
        if not tasks.size():
            return None
        df = read_tasks(self._spark, self._table, tasks).where(condition)
        return df.select(*map(quoted, spark_schema(self._spark, self._table).names), *metadata)

    def bytes(self, condition: str, snapshot: JavaSnapshot | None) -> int:
        """The size of the files that hold rows which meet a condition."""
        rows = self.rows(condition, snapshot, "_file")
        if rows is None or snapshot is None:
            return 0
        paths = rows.select(F.col("_file").alias("file_path")).distinct()
        files = self._spark.read.option("versionAsOf", int(snapshot.snapshotId())).table(f"{self._name.sql}.files")
        size = files.join(paths, "file_path").agg(F.sum("file_size_in_bytes")).first()
        return int(size[0] or 0) if size is not None else 0

    # writers

    def refuse_foreign(self, slice: Slice, head: JavaSnapshot | None) -> None:
        """Refuses a slice if it has rows of other or unknown writers, or if other writers have removed rows from it."""
        others = self.commits_of_others(head)
        adding = [snapshot for snapshot in others if int(snapshot.summary().get("added-data-files") or 0)]
        removing = [snapshot for snapshot in others if str(snapshot.operation()) in ("delete", "overwrite")]
        if adding and (writers := list(dict.fromkeys(self._writers_of_rows(slice, head, adding)))):
            raise self._error(slice, f"holds rows of {_listed(writers)}")
        for snapshot in removing:
            if self._count(slice, self._parent(snapshot)) > self._count(slice, snapshot):
                why = f"{self._writer(snapshot)} has deleted some of its rows, which would come back"
                raise self._error(slice, f"is not as the pipeline has left it: {why}")

    def _error(self, slice: Slice, why: str) -> InputError:
        return InputError(
            f"{slice.name} of {self._name.text} {why}; its rows were not replaced.",
            where=self._where,
            fix=f"leave those rows out with --where; `helios history {self._name.text}` and `helios why` show who "
            "wrote them. Rows of another pipeline are repaired by a backfill of that pipeline.",
        )

    def commits_of_others(self, head: JavaSnapshot | None) -> list[JavaSnapshot]:
        """The commits up to a head in which other writers changed rows.

        Raises:
            InputError: Commits have expired, so their writers are unknown.
        """
        if head is None:
            return []
        seen_head, seen_others = self._seen or (None, [])
        others: list[JavaSnapshot] = []
        history = History(self._table, head)
        reached_seen_head = False
        for snapshot in history:
            if seen_head is not None and int(snapshot.snapshotId()) == seen_head:
                reached_seen_head = True
                break
            if changes_rows(snapshot) and snapshot.summary().get("helios.pipeline") not in self._own:
                others.append(snapshot)
        if not reached_seen_head and history.is_cut and not self._trusts_expired:
            raise InputError(
                f"{history.lost} of {self._name.text} and those before it have expired, so that nothing "
                "tells who wrote their rows; nothing was written.",
                where=self._where,
                fix="if nobody but the pipeline has written or deleted rows there, pass --trust-expired.",
            )
        others += seen_others if reached_seen_head else []
        self._seen = int(head.snapshotId()), others
        return others

    def _writers_of_rows(
        self, slice: Slice, head: JavaSnapshot | None, adding: Sequence[JavaSnapshot]
    ) -> Iterator[str]:
        """Yields the other writers whose rows a slice has.

        The row lineage of format v3 tells which commit wrote a row. A row without lineage, in format v2 or from before
        an upgrade, was written by the commit that added its file.

        Args:
            adding: The commits of other writers that added files, newest first.
        """
        numbers = self._values(slice, head, LAST_CHANGED) if self._has_lineage else [None]
        by_number: dict[object, JavaSnapshot] = {int(snapshot.sequenceNumber()): snapshot for snapshot in adding}
        yield from sorted({self._writer(by_number[number]) for number in numbers if number in by_number})
        if head is None or None not in numbers:
            return
        values = self._values(slice, head, "_file")
        entries = self._spark.read.option("versionAsOf", int(head.snapshotId())).table(f"{self._name.sql}.entries")
        files = entries.where("status < 2").select("data_file.file_path", "snapshot_id")
        added = {int(row[0]) for row in files.where(F.col("file_path").isin(values)).select("snapshot_id").collect()}
        by_id = {int(snapshot.snapshotId()): snapshot for snapshot in adding}
        yield from sorted({self._writer(by_id[id]) for id in added if id in by_id})
        for id in sorted(added - by_id.keys()):
            snapshot = self._table.snapshot(id)
            if snapshot is not None and str(snapshot.operation()) == COMPACTION:
                oldest = self._writer(adding[-1])
                yield f"files that snapshot {id} has compacted, maybe with rows of {oldest}"
                return

    @property
    def _has_lineage(self) -> bool:
        return int(classes().org.apache.iceberg.TableUtil.formatVersion(self._table)) >= 3

    def _values(self, slice: Slice, head: JavaSnapshot | None, column: str) -> list[object]:
        """The distinct values of a metadata column in the rows of a slice."""
        rows = self.rows(slice.condition, head, column)
        return [row[0] for row in rows.select(column).distinct().collect()] if rows is not None else []

    def _count(self, slice: Slice, snapshot: JavaSnapshot | None) -> int:
        rows = self.rows(slice.condition, snapshot)
        return rows.count() if rows is not None else 0

    def _parent(self, snapshot: JavaSnapshot) -> JavaSnapshot | None:
        parent = snapshot.parentId()
        return self._table.snapshot(int(parent)) if parent is not None else None

    def _writer(self, snapshot: JavaSnapshot) -> str:
        pipeline = snapshot.summary().get("helios.pipeline")
        id = int(snapshot.snapshotId())
        return f"pipeline {pipeline} (snapshot {id})" if pipeline else f"another writer (snapshot {id})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
