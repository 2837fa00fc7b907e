"""One start of a pipeline: builds its DataFrame, validates the start, and runs its batches under a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from helios.errors import CheckFailed, InputError
from helios.model.columns import IS_DELETE, LOG_ORDER
from helios.model.flow import flows
from helios.model.modes import Groups
from helios.plan.checks.carried_order import renamed
from helios.plan.checks.pipeline import pipeline_problems
from helios.plan.nodes import Plan, ReadPath
from helios.plan.other_pipelines import writers_of_same_branch
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import CarriesOrder, Source, open_source
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.repeat import Repeat
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import refusal
from helios.spark.run.batches import SCHEDULERS
from helios.spark.run.job import Job, Run
from helios.spark.run.startup import StartupValidator
from helios.spark.sinks.context import SinkContext
from helios.spark.steps import materialized_view, row_by_row
from helios.spark.steps.build import build
from helios.steps.join import Join

STATEFUL_OPERATORS = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "EventTimeWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)
"""Spark's logical operators that keep state in a streaming plan (from UnsupportedOperationChecker)."""


class PipelineQuery:
    """One start of a pipeline."""

    def __init__(self, plan: Plan, spark: SparkSession, run: Run, location: str) -> None:
        self.compiled = plan
        self.plan = _with_group_mode(plan)
        self.spark = spark
        self.run = run
        self.checkpoint = Checkpoint(spark, location)
        self.sources = self._open()

    def _open(self) -> dict[int, Source]:
        context = SourceContext(plan=self.plan, spark=self.spark, observer=self.run, checkpoint=self.checkpoint)
        return {index: open_source(context, index) for index in range(len(self.plan.reads))}

    def _with_source_order(self) -> Plan:
        """The plan, whose upsert takes order, deletes and undeclared keys from a source that has them."""
        plan, source = self.plan, self.sources[0]
        mode = plan.write.mode.upsert
        if not plan.reads[0].source.carries_order or mode is None:
            return plan
        assert isinstance(source, CarriesOrder)
        # Each table of a mirror has its own keys.
        keys = () if plan.write.sink.mirrors else mode.keys or renamed(source.keys(), plan.stream.steps)
        ordered = replace(mode, keys=keys, order_by=LOG_ORDER, delete_when=IS_DELETE, stores_order=False)
        return replace(plan, write=replace(plan.write, sink=replace(plan.write.iceberg, mode=ordered)))

    # before anything is written

    def declare(self, *, refills: bool = False) -> DataFrame:
        """Builds the DataFrame of the whole pipeline, which Spark analyzes, and decides the read path.

        Args:
            refills: Whether the target is refilled from the start.

        Raises:
            CheckpointError: The checkpoint cannot be read.
            CheckFailed: Spark keeps state for the steps, and the steps or the sink do not fit a stateful query.
            InputError: Spark refuses an expression, or the plan as a stream.
        """
        self._replace_plan(self._with_source_order())
        for source in self.sources.values():
            source.context = replace(source.context, refills=refills)
        if self.plan.path is ReadPath.BATCH:
            with scan_task_scope():
                return self._build()
        view = self.plan.view
        if view is not None:
            return materialized_view.empty(self.spark, self.plan, view)
        df = self._build()
        if not df.isStreaming:
            raise InputError(
                "a callable turned the stream into a batch DataFrame.",
                where=self.plan.origin,
                fix="return a DataFrame made from the one that was passed in.",
            )
        self._refuse_unsupported(df)
        if keeps_state(df) and self.plan.path is not ReadPath.STATEFUL:
            problems = pipeline_problems(self.plan.declared, self.plan.write.sink, ReadPath.STATEFUL)
            if problems:
                raise CheckFailed(problems)
            return self._as_stateful(df)
        return df

    def _as_stateful(self, df: DataFrame) -> DataFrame:
        """Switches the plan to one stateful query, because Spark keeps state for its steps."""
        self._replace_plan(replace(self.plan, path=ReadPath.STATEFUL))
        steps = [step for flow in flows(self.plan.stream) for step in flow.steps]
        if any(isinstance(step, Join) and step.as_of is not None for step in steps):
            return self._build()  # raises: a stateful stream cannot choose the snapshots that it joins
        return df

    def _replace_plan(self, plan: Plan) -> None:
        self.plan = plan
        for source in self.sources.values():
            source.context = replace(source.context, plan=plan)

    def _build(self) -> DataFrame:
        """The pipeline's DataFrame over streams of the followed sources and the current rows of all other sources."""

        def rows(index: int) -> DataFrame:
            source = self.sources[index]
            frame = source.stream() if source.read_plan.source.streaming else source.read(self.spark, None)
            assert frame is not None
            return frame

        return build(self.plan, lambda index, _: rows(index)).df

    def _refuse_unsupported(self, df: DataFrame) -> None:
        jvm = classes()
        plan = df._jdf.queryExecution().analyzed()
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = modes.Update() if self.plan.output_mode == "update" else modes.Append()
        try:
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except AnalysisException as error:
            fix = (
                'append after a watermark: watermark("ts", "10 minutes") and window("ts", ...), or upsert by the '
                "group columns."
            )
            refused = refusal("Spark cannot stream this pipeline", error, self.plan.origin)
            refused.fix = fix if "watermark" in refused.what else None
            raise refused from error

    def validate(
        self,
        df: DataFrame,
        *,
        new_checkpoint: bool,
        full_refresh: bool,
        again: bool = False,
        beside: Collection[str] = (),
        siblings: Mapping[str, Plan | None] = MappingProxyType({}),
    ) -> Job:
        """Validates that checkpoint, pipeline and target match, and takes the lease; the caller releases it.

        Args:
            df: The rows to write; only their schema is used.
            new_checkpoint: Whether to resume with a new checkpoint at the position in the target's record.
            full_refresh: Whether to empty the target and refill it from the start.
            again: Whether to append inputs that were appended before.
            beside: Pipelines whose rows of the same sources may be in the target, too.
            siblings: The pipelines of the script, whose rows may be in the target, too. Each name has its plan
                if the same run starts it, and None otherwise.
        """
        repeat = Repeat(self.checkpoint, self.plan.fingerprint, requested=again)
        context = SinkContext(
            plan=self.plan,
            spark=self.spark,
            checkpoint=self.checkpoint,
            observer=self.run,
            again=repeat if again else None,
            why_not_row_by_row=cache(self._why_not_row_by_row),
        )
        restart = {"new_checkpoint": new_checkpoint, "full_refresh": full_refresh}
        validator = StartupValidator(context, compiled=self.compiled, beside=beside, siblings=siblings, **restart)
        started = validator.start(df)
        return Job(
            plan=self.plan,
            spark=self.spark,
            run=self.run,
            checkpoint=self.checkpoint,
            lease=started.lease,
            sources=self.sources,
            schema=df.schema,
            sink=started.sink,
            last_planned=started.last_planned,
            repeat=repeat,
            beside=beside,
            siblings=writers_of_same_branch(self.plan, siblings.values()),
        )

    def _why_not_row_by_row(self) -> str | None:
        """Why a row after the steps depends on several input rows; None if each row depends on one input row."""

        def empty(index: int) -> DataFrame:
            rows = self.sources[index].read(self.spark, None)
            assert rows is not None
            return self.spark.createDataFrame([], rows.schema)

        with scan_task_scope():
            return row_by_row.combining_reason(self.plan, empty)

    def execute(self, job: Job, df: DataFrame) -> None:
        """Runs the batches, until the sources are drained or the run is stopped."""
        SCHEDULERS[self.plan.path](job, df)


def _with_group_mode(plan: Plan) -> Plan:
    """The plan, with the mode `Groups` if it is a materialized view by keys, which is written group by group."""
    mode = plan.write.mode
    if plan.view is None or mode.upsert is None:
        return plan
    return replace(plan, write=replace(plan.write, sink=replace(plan.write.iceberg, mode=Groups(keys=mode.keys))))


def keeps_state(df: DataFrame) -> bool:
    """True if Spark would keep state for a streaming DataFrame, even if only a callable or an SQL step needs it."""
    pending = [df._jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        name = str(node.nodeName())
        children = [node.children().apply(i) for i in range(node.children().size())]
        if node.isStreaming() and name in STATEFUL_OPERATORS:
            return True
        if name == "Join" and all(child.isStreaming() for child in children):
            return True
        pending += children
    return False
