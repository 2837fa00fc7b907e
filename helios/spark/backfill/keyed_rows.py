"""The rows of a target with keys, at its snapshots, and those that the script gives of the batches of its upsert."""

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
from helios.spark.backfill.recompute import Ends, Recompute
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

BATCH, SIGN, TIED = "__helios_batch", "__helios_sign", "__helios_tied"
"""The number of a row's batch; 1 for a row that comes, -1 for one that goes; whether other newest rows of its key
differ, and nothing tells which one came last."""
CONTENT, PLACE = "__helios_content", "__helios_place"
EXACT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""How rows are written as JSON so that two different ones differ: Spark's default leaves microseconds out."""
BEFORE = -1
"""The batch of the rows from before all batches."""


@dataclass(frozen=True, kw_only=True)
class TargetStates:
    """The rows of a target at its snapshots.

    Attributes:
        spark: The session.
        table: Iceberg's table object.
        keys: The key columns.
    """

    spark: SparkSession
    table: JavaTable
    keys: tuple[str, ...]

    @property
    def schema(self) -> StructType:
        return spark_schema(self.spark, self.table)

    def at(self, snapshot: JavaSnapshot | None, scope: MergeScope) -> DataFrame:
        """The rows of a state whose keys are in a scope, in the table's present columns."""
        if snapshot is None:
            return self._read(None)
        scan = self.table.newScan().useSnapshot(int(snapshot.snapshotId()))
        if snapshot.schemaId() == self.table.schema().schemaId():  # else the filter is bound to other columns
            types = {field.name: field.dataType for field in self.schema.fields}
            scan = scan.filter(iceberg_scope_of(self.table, types, scope).within)
        return scope.narrow(self._read(plan_tasks(self.spark, scan)))

    def changed_keys(self, before: JavaSnapshot | None, after: JavaSnapshot) -> DataFrame:
        """The keys whose rows differ between two states; only files that differ are read."""
        second = plan_tasks(self.spark, self.table.newScan().useSnapshot(int(after.snapshotId())))
        if before is None:
            return self._keys(self._read(second))
        first = plan_tasks(self.spark, self.table.newScan().useSnapshot(int(before.snapshotId())))
        comparer = cast("JavaTaskComparer", instance(self.spark, OTHER_TASKS))
        lost, came = list(comparer.call(first, second).toArray())
        return self._keys(self.difference(self._read(lost), self._read(came)))

    def changed_by(self, snapshot: JavaSnapshot) -> DataFrame:
        """The keys whose rows a commit changed."""
        parent = snapshot.parentId()
        return self.changed_keys(self.table.snapshot(int(parent)) if parent is not None else None, snapshot)

    def difference(self, before: DataFrame, after: DataFrame) -> DataFrame:
        """The rows that one has and the other lacks, with their `SIGN`, as multisets."""
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
    """The rows that the script gives of the batches of an upsert.

    Attributes:
        plan: The pipeline.
        spark: The session.
        table: Iceberg's table object.
        recompute: The steps of the script over its sources.
        rejects: The quarantine of the pipeline.
        evolves: Whether the target gets new columns of the script; False for a dry run.
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
        """Rejects a target that does not tell each key's order, or a part of each row.

        Raises:
            InputError: The target does not store the order, or has columns that the script does not give.
        """
        stored, named = spark_schema(self.spark, self.table).names, {name.lower() for name in self._given().names}
        order = (self.mode.order_by or "").strip("` ").lower()
        kept = [name for name in stored if name.lower() not in named]
        why, fix = None, "refill the target with `helios run --full-refresh`."
        if self.mode.order_by is not None and (order not in named or order not in map(str.lower, stored)):
            why = f"it does not store {self.mode.order_by}, by which the pipeline remembers each key"
        elif kept:
            why = f"the script does not give {', '.join(kept)}, which a row keeps from commit to commit"
            evolution = self.plan.write.iceberg.evolution
            if set(kept) <= {*(old for old, _ in evolution.renames), *evolution.drops}:
                why = f"{', '.join(kept)} of the target is still to be renamed or dropped"
                fix = "run the pipeline once, which does so, and repair then."
        if why is not None:
            raise InputError(
                f"rows of {self.plan.write.table.text} cannot be repaired by their keys: {why}; nothing was written.",
                where=self.plan.declared.sink.origin,
                fix=fix,
            )

    def evolve(self) -> None:
        """Adds new columns of the script to the target, but for a dry run."""
        if self.evolves:
            SchemaAligner(self.spark, self.plan, self.plan.write.table, self.table).evolved(self._given())

    def _given(self) -> StructType:
        """The columns that the script gives to be stored."""
        made = self.recompute.analyzed().schema
        hidden = {name.lower() for name in (POSITION, *self._left_out(made))}
        return StructType([field for field in made.fields if field.name.lower() not in hidden])

    def _left_out(self, made: StructType) -> tuple[str, ...]:
        stored = columns_of(spark_schema(self.spark, self.table))
        return left_out(self.plan.write.iceberg, columns_of(made), stored, has_written=True)

    def of(self, past: PastBatches, batches: Sequence[PastBatch]) -> DataFrame | None:
        """The rows of batches as the target stores them, each with `ORDER`, `DELETED` and its `BATCH`; None for none.

        Raises:
            HeliosError: A source no longer holds them, the script rejects other rows than the batches, or the rows
                cannot be upserted; names what is wrong.
        """
        parts: list[DataFrame] = []
        rejected: dict[int, list[DataFrame]] = {batch.owner: [] for batch in batches}
        for batch in batches:
            ordered = self.mode.order_by is not None
            built = self.recompute.rows(batch.after, batch.to, positioned=ordered and self._passes)
            if built is None:
                continue
            if self.plan.write.quarantine is not None:
                built = split_invalid(built, self.mode)
            rejected[batch.owner] += built.rejected
            parts.append(self._stored(built, batch.number))
        for owner, some in rejected.items():
            if owner < len(past.made):
                self.rejects.refuse_other(some, past.made[owner].commit)
            else:
                self.rejects.refuse_new(some)
        if not parts:
            return None
        rows = reduce(DataFrame.unionByName, parts)
        merge.validate_keys(rows, self.mode, self.plan.write.table.text, self.plan.declared.sink.origin, also=(BATCH,))
        return rows

    def read(self, after: Ends | None, to: Ends, number: int) -> DataFrame | None:
        """The newest row of each key between two positions, all batches at once, as `of` gives rows, and if it is tied.

        Of a key that is tied, all of these rows.

        Args:
            after: Where the rows begin; None for the first start of the pipeline.
            to: Where they end.
            number: The number that they get as their batch.

        Returns:
            None for no rows.

        Raises:
            HeliosError: A source no longer holds them, or the script rejects other rows than the batches.
        """
        built = self.recompute.rows(after, to, positioned=self._passes)
        if built is None:
            return None
        if self.plan.write.quarantine is not None:
            built = split_invalid(built, self.mode)
        refuse = self.rejects.refuse_other if after is None else self.rejects.refuse_new
        refuse(built.rejected)
        rows = self._fitted(merge.marked(built.df, self.mode), number)
        tied = self._tied(rows)
        return merge.newest(tied.where(~F.col(TIED)), self.mode.keys).unionByName(tied.where(TIED)).drop(POSITION)

    def _tied(self, rows: DataFrame) -> DataFrame:
        """The newest rows of each key, with `TIED`: those of the largest order, and of these, of the last commit.

        An upsert with an order takes the last of several rows of a commit, unless batches may cut the commit.
        """
        commit, trigger = self._commit(rows), self.plan.trigger
        names = [quoted(name) for name in rows.columns if name not in (POSITION, BATCH)]
        keyed = Window.partitionBy(*map(quoted, self.mode.keys))
        place = F.dense_rank().over(keyed.orderBy(F.col(ORDER).desc_nulls_last(), commit.desc()))
        rows = rows.withColumns({CONTENT: F.xxhash64(F.to_json(F.struct(*names), EXACT)), PLACE: place})
        rows = rows.where(F.col(PLACE) == 1)
        tied = F.min(CONTENT).over(keyed) != F.max(CONTENT).over(keyed)
        whole = trigger is None or (trigger.max_rows is None and trigger.max_files is None)
        if self.mode.order_by is not None and whole:
            tied = tied & (commit == 0)
        return rows.withColumn(TIED, tied).drop(CONTENT, PLACE)

    def _commit(self, rows: DataFrame) -> Column:
        """The number of a row's commit in the source; 0 where nothing tells it."""
        followed = [read.source for read in self.plan.reads if read.source.streaming]
        if POSITION not in rows.columns or len(followed) != 1 or not followed[0].commits_in_positions:
            return F.lit(0)
        kind = rows.schema[POSITION].dataType
        assert isinstance(kind, StructType)
        return F.coalesce(F.col(POSITION)[kind.names[0]], F.lit(0))

    @property
    def _passes(self) -> bool:
        """Whether the steps pass the positions of rows on."""
        return all(step.traits.passes_hidden for step in self.plan.stream.steps)

    def _stored(self, built: Built, number: int) -> DataFrame:
        rows = merge.marked(built.df, self.mode)
        if self.mode.order_by is not None:
            rows = merge.newest(rows, self.mode.keys)
        return self._fitted(rows.drop(POSITION), number)

    def _fitted(self, rows: DataFrame, number: int) -> DataFrame:
        """Rows as the target stores them, with their helper columns and their position, where they have one."""
        rows = rows.drop(*self._left_out(rows.schema))
        schema = spark_schema(self.spark, self.table)
        known, helpers = {name.lower() for name in schema.names}, (*merge.HELPERS, POSITION)
        rows = rows.select(*[quoted(name) for name in rows.columns if name.lower() in known or name in helpers])
        kept = [rows.schema[name] for name in helpers if name in rows.columns]
        rows = align(rows, StructType([*schema.fields, *kept]))
        return marked(rows.drop(ORDER), self.mode, number, DELETED)


def marked(rows: DataFrame, mode: Upsert, batch: int, *also: str) -> DataFrame:
    """Rows of the target with their `ORDER`, as the target stores it, and their `BATCH`; not deleted but by `also`."""
    order = F.expr(mode.order_by) if mode.order_by is not None else F.lit(None).cast("bigint")
    rows = rows.withColumns({ORDER: order, BATCH: F.lit(batch)})
    return rows if DELETED in also else rows.withColumn(DELETED, F.lit(False))


def latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The row that each key has after all batches: the largest order, and of equal ones, or without, the latest.

    Of a tied key, all of its rows: each other one has one row of a batch.
    """
    order = [F.col(ORDER).desc_nulls_last(), F.col(BATCH).desc()]
    rank = F.rank().over(Window.partitionBy(*map(quoted, keys)).orderBy(*order))
    return rows.withColumn(merge.RANK, rank).where(F.col(merge.RANK) == 1).drop(merge.RANK)


def newest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The latest rows of keys that are not deleted, as the target stores them."""
    return latest(rows, keys).where(~F.col(DELETED)).drop(ORDER, DELETED, BATCH)
