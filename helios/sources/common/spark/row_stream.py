"""Spark's `Source` interface for a stateful pipeline, implemented in Python.

`MicroBatchStream` needs Spark's input partitions. For a source that reads spans as DataFrames, `RowStream` implements
Spark's older `Source` interface, which returns a DataFrame for each batch.
"""

from __future__ import annotations

from typing import Protocol, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typing_extensions import override

from helios.errors import RunError
from helios.sources.common.spark.micro_batch import FollowedSource, SourceOffsets, keeping_error, position_of
from helios.sources.common.spark.protocol import require_declared_columns
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.java import JavaObject, ScalaOption
from helios.spark.jvm.types.spark import (
    JavaDataset,
    JavaLogicalPlan,
    JavaLogicalRelation,
    JavaOffset,
    JavaStructType,
)
from helios.spark.jvm.version import spark_version
from helios.table.positions import Position, Span

STREAMING = "org.apache.spark.sql.connector.read.streaming"

STREAMABLE = ("Project", "Filter", "Union", "SubqueryAlias", "LocalRelation")
"""Spark's logical operators that mean the same in a batch plan and in a streaming plan."""


def streaming(plan: JavaLogicalPlan) -> JavaLogicalPlan | None:
    """A batch plan as a streaming plan; None if the plan has an operator that means something else in a stream."""
    kind = str(plan.getClass().getSimpleName())
    if kind == "LogicalRelation":
        none = classes().scala.Option.empty()
        scan = cast("JavaLogicalRelation", plan)
        return scan.copy(scan.relation(), scan.output(), scan.catalogTable(), True, none)
    if kind not in STREAMABLE:
        return None
    children = [streaming(plan.children().apply(index)) for index in range(plan.children().size())]
    streaming_children = [child for child in children if child is not None]
    if len(streaming_children) < len(children):
        return None
    if not streaming_children:
        return plan
    return plan.withNewChildren(classes().org.apache.spark.api.python.PythonUtils.toSeq(streaming_children))


class SpannedSource(FollowedSource, Protocol):
    """The members of a source that a row stream uses."""

    def span(self, start: Position | None, end: Position | None) -> Span: ...

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None: ...


class RowStream(SourceOffsets[SpannedSource]):
    """Presents a followed source, whose spans are DataFrames, to Spark as a stream."""

    def __init__(self, source: SpannedSource) -> None:
        super().__init__(source)
        self._spark = source.context.spark
        self._past_restart = False

    def df(self) -> DataFrame:
        """The stream as a streaming DataFrame."""
        jvm, session = classes(), self._spark._jsparkSession
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(self._java_schema)
        relation = spark_version(self._spark).streaming_package().StreamingExecutionRelation
        plan = relation(self, attributes, jvm.scala.Option.empty(), session)
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), self._spark)

    # Spark's interface Source

    def schema(self) -> JavaStructType:
        return self._java_schema

    def getBatch(self, start: ScalaOption[JavaOffset], end: JavaOffset) -> JavaDataset:
        rows = keeping_error(self.source, lambda: self._rows(start, end))
        session = self._spark._jsparkSession
        # Spark accepts only a streaming plan here. The alternative, an RDD, would not prune columns and files.
        plan = streaming(rows._jdf.queryExecution().analyzed())
        if plan is not None and plan.isStreaming():
            batch: JavaDataset = classes().org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
            return batch
        rdd = rows._jdf.queryExecution().toRdd()
        unpruned: JavaDataset = session.internalCreateDataFrame(rdd, self._java_schema, True)
        return unpruned

    def _rows(self, start: ScalaOption[JavaOffset], end: JavaOffset) -> DataFrame:
        start_position = position_of(start.get()) if start.isDefined() else self.source.start()
        end_position = position_of(end)
        # After a restart, Spark requests the last committed batch once more, but uses none of its rows.
        span = self.source.span(start_position, end_position)
        rows = None if self._committed(end_position) else self.source.read(self._spark, span)
        if rows is None:
            return self._spark.createDataFrame([], self._schema)
        require_declared_columns(rows, self.source.read_plan)
        new_columns = [name for name in rows.columns if name not in self._schema.names]
        if new_columns:
            raise RunError(
                f"{self.source.read_plan.name} has columns that are new since the run began "
                f"({', '.join(new_columns)}), and the running stream would leave these columns out.",
                where=self.source.context.plan.origin,
                fix="run again: a new run reads the current columns.",
            )
        columns = [
            (F.col(f"`{field.name}`") if field.name in rows.columns else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in self._schema.fields
        ]
        return rows.select(*columns)

    def _committed(self, end: Position) -> bool:
        """True if the batch that Spark requests was committed by an earlier run."""
        checkpoint = self.source.context.checkpoint
        if self._past_restart or checkpoint is None:
            return False
        committed = checkpoint.batches("commits")
        return bool(committed) and dict(end) in checkpoint.offsets(committed[-1])

    def getOffset(self) -> JavaObject:
        offset: JavaObject = classes().scala.Some(self.latestOffset())
        return offset

    @override
    def latestOffset(self, start: JavaOffset | None = None, limit: JavaObject | None = None) -> JavaOffset:
        self._past_restart = True
        return super().latestOffset(start, limit)

    class Java:
        implements = (
            "org.apache.spark.sql.execution.streaming.Source",
            f"{STREAMING}.SupportsTriggerAvailableNow",
        )
