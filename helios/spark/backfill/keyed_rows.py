"""The rows of an upsert by key: those that the target has at a snapshot, and those that the script computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from helios.errors import InputError
from helios.model.columns import POSITION
from helios.model.modes import Upsert
from helios.plan.checks.sinks import left_out
from helios.plan.nodes import Plan
from helios.spark.backfill.batches import PastBatch, PastBatches
from helios.spark.backfill.recompute import Positions, Recompute
from helios.spark.backfill.rejects import Rejects
from helios.spark.checkpoint.upsert_state import DELETED, ORDER
from helios.spark.diff.rows import OTHER_TASKS
from helios.spark.iceberg.merge_scope import MergeScope, iceberg_scope_of
from helios.spark.iceberg.multiset import net
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.schema import align
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.files import JavaFileScanTask, JavaTaskComparer
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.spark.sinks import merge
from helios.spark.sinks.alignment import SchemaAligner, columns_of
from helios.spark.sinks.table import split_invalid
from helios.spark.steps.build import Built

BATCH = "__helios_batch"
"""The column with the number of a row's batch."""
SIGN = "__helios_sign"
"""The column that is 1 for an added row, and -1 for a removed row."""
TIED = "__helios_tied"
"""The column that is true if several different rows of a key may be the newest: it is unknown which one came last."""
CONTENT_HASH, ORDER_RANK = "__helios_content", "__helios_place"
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Options that make the JSON of two different rows differ: Spark's default format leaves microseconds out."""
BEFORE_BATCHES = -1
"""The batch number of rows that are older than all batches."""


@dataclass(frozen=True, kw_only=True)
class TargetSnapshots:
    """Reads the rows of a target at its snapshots."""

    spark: SparkSession
    table: JavaTable
    keys: tuple[str, ...]

    @property
    def schema(self) -> StructType:
        return spark_schema(self.spark, self.table)

    def at(self, snapshot: JavaSnapshot | None, scope: MergeScope) -> DataFrame:
        """The rows at a snapshot whose keys are in a scope, with the table's present columns.

        Args:
            snapshot: The snapshot; None for a table without rows.
        """
        if snapshot is None:
            return self._read(None)
        scan = self.table.newScan().useSnapshot(int(snapshot.snapshotId()))
        if snapshot.schemaId() == self.table.schema().schemaId():  # a filter binds to the columns of the snapshot
            types = {field.name: field.dataType for field in self.schema.fields}
            scan = scan.filter(iceberg_scope_of(self.table, types, scope).key_range)
        return scope.narrow(self._read(plan_tasks(self.spark, scan)))

    def changed_keys(self, before: JavaSnapshot | None, after: JavaSnapshot) -> DataFrame:
        """The keys whose rows differ between two snapshots. Files that both snapshots have are not read."""
        tasks_after = plan_tasks(self.spark, self.table.newScan().useSnapshot(int(after.snapshotId())))
        if before is None:
            return self._keys(self._read(tasks_after))
        tasks_before = plan_tasks(self.spark, self.table.newScan().useSnapshot(int(before.snapshotId())))
        comparer = cast("JavaTaskComparer", instance(self.spark, OTHER_TASKS))
        only_before, only_after = list(comparer.call(tasks_before, tasks_after).toArray())
        return self._keys(self.difference(self._read(only_before), self._read(only_after)))

    def keys_changed_by(self, snapshot: JavaSnapshot) -> DataFrame:
        """The keys whose rows a commit changed."""
        parent = snapshot.parentId()
        return self.changed_keys(self.table.snapshot(int(parent)) if parent is not None else None, snapshot)

    def difference(self, before: DataFrame, after: DataFrame) -> DataFrame:
        """The rows that only one side has, compared as multisets: with `SIGN` -1 for `before`, and 1 for `after`.

        If a side has several more copies of a row, the sign is multiplied by their number.
        """
        fields = self.schema.fields
        names = [quoted(field.name) for field in fields]
        signed = [rows.select(*names, F.lit(sign).alias(SIGN)) for rows, sign in ((before, -1), (after, 1))]
        return net(signed[0].unionByName(signed[1]), fields, (), SIGN)

    def _keys(self, rows: DataFrame) -> DataFrame:
        return rows.select(*map(quoted, self.keys)).distinct()

    def _read(self, tasks: JavaList[JavaFileScanTask] | None) -> DataFrame:
        if tasks is None or not tasks.size():
            return self.spark.createDataFrame([], self.schema)
        return read_tasks(self.spark, self.table, tasks).select(*map(quoted, self.schema.names))


@dataclass(kw_only=True)
class BatchRows:
    """Computes the rows of an upsert's batches with the current script.

    Attributes:
        recompute: Runs the steps of the script over its sources.
        rejects: Compares rejected rows with the pipeline's quarantine.
        evolves: Whether new columns of the script are added to the target; False for a dry run.
    """

    plan: Plan
    spark: SparkSession
    table: JavaTable
    recompute: Recompute
    rejects: Rejects
    evolves: bool

    @property
    def mode(self) -> Upsert:
        mode = self.plan.write.mode.upsert
        assert mode is not None  # other modes are refused
        return mode

    def refuse_columns(self) -> None:
        """Refuses a target whose rows cannot be computed again from the batches alone.

        Raises:
            InputError: The target does not store the order, or has columns that the script does not compute.
        """
        stored = spark_schema(self.spark, self.table).names
        computed = {name.lower() for name in self._script_schema().names}
        order = (self.mode.order_by or "").strip("` ").lower()
        not_computed = [name for name in stored if name.lower() not in computed]
        why, fix = None, "refill the target with `helios run --full-refresh`."
        if self.mode.order_by is not None and (order not in computed or order not in map(str.lower, stored)):
            why = f"the table does not store {self.mode.order_by}, by which the pipeline orders the rows of a key"
        elif not_computed:
            names = ", ".join(not_computed)
            why = f"the script does not compute {names}, whose values a row keeps from commit to commit"
            evolution = self.plan.write.iceberg.evolution
            if set(not_computed) <= {*(old for old, _ in evolution.renames), *evolution.drops}:
                why = f"the next run will rename or drop {names}"
                fix = "run the pipeline once, then repair its commits."
        if why is not None:
            raise InputError(
                f"rows of {self.plan.write.table.text} cannot be repaired by their keys: {why}; nothing was written.",
                where=self.plan.declared.sink.origin,
                fix=fix,
            )

    def evolve(self) -> None:
        """Adds new columns of the script to the target, unless this is a dry run."""
        if self.evolves:
            SchemaAligner(self.spark, self.plan, self.plan.write.table, self.table).evolved(self._script_schema())

    def _script_schema(self) -> StructType:
        """The columns that the script computes and the target stores."""
        schema = self.recompute.analyzed().schema
        not_stored = {name.lower() for name in (POSITION, *self._left_out(schema))}
        return StructType([field for field in schema.fields if field.name.lower() not in not_stored])

    def _left_out(self, schema: StructType) -> tuple[str, ...]:
        stored = columns_of(spark_schema(self.spark, self.table))
        return left_out(self.plan.write.iceberg, columns_of(schema), stored, has_written=True)

    def of_batches(self, past: PastBatches, batches: Sequence[PastBatch]) -> DataFrame | None:
        """The rows of some batches as the target stores them, with `ORDER`, `DELETED` and `BATCH`; None for no rows.

        Raises:
            HeliosError: A source no longer has the rows, the script rejects other rows than the pipeline did, or the
                rows cannot be upserted.
        """
        parts: list[DataFrame] = []
        rejected: dict[int, list[DataFrame]] = {batch.commit_index: [] for batch in batches}
        for batch in batches:
            ordered = self.mode.order_by is not None
            built = self.recompute.rows(batch.after, batch.to, positioned=ordered and self._passes_positions)
            if built is None:
                continue
            if self.plan.write.quarantine is not None:
                built = split_invalid(built, self.mode)
            rejected[batch.commit_index] += built.rejected
            parts.append(self._batch_rows(built, batch.number))
        for commit_index, rejected_rows in rejected.items():
            if commit_index < len(past.commits):
                self.rejects.refuse_difference(rejected_rows, past.commits[commit_index].commit)
            else:
                self.rejects.refuse_new(rejected_rows)
        if not parts:
            return None
        rows = reduce(DataFrame.unionByName, parts)
        merge.validate_keys(rows, self.mode, self.plan.write.table.text, self.plan.declared.sink.origin, also=(BATCH,))
        return rows

    def newest_between(self, after: Positions | None, to: Positions, number: int) -> DataFrame | None:
        """The newest row of each key between two positions of the sources, computed in one query over all batches.

        The rows have the columns of `of_batches`, and `TIED`; None for no rows. For a tied key, all rows that may be
        the newest are returned.

        Args:
            after: The position after which the rows begin; None for the first start of the pipeline.
            to: The position at which the rows end.
            number: The value of `BATCH` for all of the rows.

        Raises:
            HeliosError: A source no longer has the rows, or the script rejects other rows than the pipeline did.
        """
        built = self.recompute.rows(after, to, positioned=self._passes_positions)
        if built is None:
            return None
        if self.plan.write.quarantine is not None:
            built = split_invalid(built, self.mode)
        refuse = self.rejects.refuse_difference if after is None else self.rejects.refuse_new
        refuse(built.rejected)
        rows = self._as_stored(merge.marked(built.df, self.mode), number)
        candidates = self._newest_candidates(rows)
        untied = merge.newest(candidates.where(~F.col(TIED)), self.mode.keys)
        return untied.unionByName(candidates.where(TIED)).drop(POSITION)

    def _newest_candidates(self, rows: DataFrame) -> DataFrame:
        """The rows of each key that may be its newest one, with `TIED`.

        Of the rows with the largest order, these are the rows of the last commit in the source. If they all have the
        same content, they are not tied. Nor are they tied if the pipeline certainly read them in one batch: an
        upsert with an order takes the last of the equal rows in a batch. A limit of rows or files may split a commit
        into several batches.
        """
        commit, trigger = self._source_commit(rows), self.plan.trigger
        names = [quoted(name) for name in rows.columns if name not in (POSITION, BATCH)]
        of_key = Window.partitionBy(*map(quoted, self.mode.keys))
        rank = F.dense_rank().over(of_key.orderBy(F.col(ORDER).desc_nulls_last(), commit.desc()))
        content_hash = F.xxhash64(F.to_json(F.struct(*names), JSON_OPTIONS))
        rows = rows.withColumns({CONTENT_HASH: content_hash, ORDER_RANK: rank}).where(F.col(ORDER_RANK) == 1)
        tied = F.min(CONTENT_HASH).over(of_key) != F.max(CONTENT_HASH).over(of_key)
        reads_whole_commits = trigger is None or (trigger.max_rows is None and trigger.max_files is None)
        if self.mode.order_by is not None and reads_whole_commits:
            tied = tied & (commit == 0)  # 0 means that the commit is unknown
        return rows.withColumn(TIED, tied).drop(CONTENT_HASH, ORDER_RANK)

    def _source_commit(self, rows: DataFrame) -> Column:
        """The number of the source's commit from which a row comes; 0 if unknown."""
        followed = [read.source for read in self.plan.reads if read.source.streaming]
        if POSITION not in rows.columns or len(followed) != 1 or not followed[0].commits_in_positions:
            return F.lit(0)
        position_type = rows.schema[POSITION].dataType
        assert isinstance(position_type, StructType)
        return F.coalesce(F.col(POSITION)[position_type.names[0]], F.lit(0))

    @property
    def _passes_positions(self) -> bool:
        """True if all steps keep the column with the position of a row in its source."""
        return all(step.traits.passes_hidden for step in self.plan.stream.steps)

    def _batch_rows(self, built: Built, number: int) -> DataFrame:
        rows = merge.marked(built.df, self.mode)
        if self.mode.order_by is not None:
            rows = merge.newest(rows, self.mode.keys)
        return self._as_stored(rows.drop(POSITION), number)

    def _as_stored(self, rows: DataFrame, number: int) -> DataFrame:
        """Casts rows to the columns of the target, and keeps `DELETED` and the position; adds `ORDER` and `BATCH`."""
        rows = rows.drop(*self._left_out(rows.schema))
        schema = spark_schema(self.spark, self.table)
        stored_names, helpers = {name.lower() for name in schema.names}, (*merge.HELPERS, POSITION)
        rows = rows.select(*[quoted(name) for name in rows.columns if name.lower() in stored_names or name in helpers])
        helper_fields = [rows.schema[name] for name in helpers if name in rows.columns]
        rows = align(rows, StructType([*schema.fields, *helper_fields]))
        return with_order(rows.drop(ORDER), self.mode, number)


def with_order(rows: DataFrame, mode: Upsert, batch: int) -> DataFrame:
    """Adds `ORDER`, computed from the stored columns, and `BATCH` to rows of the target."""
    order = F.expr(mode.order_by) if mode.order_by is not None else F.lit(None).cast("bigint")
    return rows.withColumns({ORDER: order, BATCH: F.lit(batch)})


def stored_rows(rows: DataFrame, mode: Upsert, batch: int) -> DataFrame:
    """Adds `ORDER`, `BATCH` and `DELETED`, which is false, to rows that the target has."""
    return with_order(rows, mode, batch).withColumn(DELETED, F.lit(False))


def latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The row that each key has after all batches: the largest order wins, and of equal orders the last batch.

    Without an order, it is the row of the last batch. For a tied key, all of its tied rows are returned.
    """
    order = [F.col(ORDER).desc_nulls_last(), F.col(BATCH).desc()]
    rank = F.rank().over(Window.partitionBy(*map(quoted, keys)).orderBy(*order))
    return rows.withColumn(merge.RANK, rank).where(F.col(merge.RANK) == 1).drop(merge.RANK)


def latest_stored(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The latest row of each key that is not deleted, with the target's columns only."""
    return latest(rows, keys).where(~F.col(DELETED)).drop(ORDER, DELETED, BATCH)
