"""Compiles declared pipelines to plans, and collects every problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import (
    checkpoint_components,
    checkpoint_problem,
    components,
    default_checkpoint,
    folder_components,
    hadoop_uri,
    pyiceberg_properties,
)
from helios.catalog.names import file_name
from helios.catalog.spec import Catalog
from helios.catalog.storages import checkpoint_schemes
from helios.errors import CheckFailed, ConfigError, DeclarationError, HeliosError, InputError
from helios.model.flow import Flow, Pipeline, Sink, Source
from helios.model.output import Output
from helios.model.sink import IcebergSink
from helios.model.step import Step
from helios.model.values import Identifier
from helios.plan.ahead import quarantine_of, target_of
from helios.plan.checks.carried_order import change_problems
from helios.plan.checks.loops import endless_loops
from helios.plan.checks.pipeline import (
    ambiguous_catalogs,
    exactly_once_problems,
    pipeline_problems,
    plans_clash,
    same_identity_problem,
    shared_checkpoint,
    uncounted_rows,
    unusable_storages,
)
from helios.plan.context import NO_TABLES, Context, Surroundings, Unsettled, WrittenTables
from helios.plan.native.choice import engine_of
from helios.plan.nodes import Plan, ReadPath, ReadPlan, WritePlan
from helios.plan.outputs import output_problems, plan_output
from helios.plan.produced import ScriptTables
from helios.plan.read_path import path_of, trigger_of
from helios.plan.spill import spill_of
from helios.plan.target import plan_write
from helios.plan.typing.aggregates import distinct_aggregate_problems, endless_aggregate_problems, is_streaming
from helios.plan.typing.as_of import AsOfRead, as_of_read, stateful_as_of, timed_join_problems
from helios.plan.typing.dedupes import dedupe_problems
from helios.plan.typing.expression import UnparsedExpression
from helios.plan.typing.filtered_groups import filtered_group_problems
from helios.plan.typing.infer import infer
from helios.plan.typing.schema import Schema
from helios.plan.typing.watermarks import dedupe_without_watermark
from helios.plan.views import view_problems
from helios.sources.kinds import is_known, source_kind
from helios.steps.join import Join
from helios.steps.union import Union

NOT_FATAL = (UnparsedExpression, Unsettled)
"""Problems that do not stop a run: Spark may parse what sqlglot cannot, and a pipeline that continues from a checkpoint
does not use the declared start of a source."""


@dataclass(frozen=True)
class Compiled:
    """The result of compiling one pipeline: its plan, if one could be made, and its problems."""

    pipeline: Pipeline
    plan: Plan | None
    problems: list[HeliosError]

    @property
    def name(self) -> str:
        """The pipeline's identity. Without a plan: the declared name, or else the label of the sink."""
        return self.plan.pipeline if self.plan is not None else self.pipeline.name or self.pipeline.sink.label()

    @property
    def fatal_problems(self) -> list[HeliosError]:
        """The problems that stop a run."""
        return [problem for problem in self.problems if not isinstance(problem, NOT_FATAL)]


def compile_pipelines(
    pipelines: Sequence[Pipeline], context: Context, *, lenient: bool = False
) -> tuple[list[Plan], list[HeliosError]]:
    """Compiles pipelines, and returns the plans and every problem found in any of them.

    A pipeline with problems has no plan. If two pipelines clash, for example by the same name, neither has a
    plan. The table of a source may be missing if another of the pipelines writes the table.

    Args:
        lenient: Whether a pipeline has a plan in spite of problems that are `NOT_FATAL`.

    Raises:
        RunError: A catalog or a storage cannot be reached.
        ConfigError: The declaration of a catalog is wrong, such as its credential.
    """
    results = compile_each(pipelines, context)
    plans = [r.plan for r in results if r.plan is not None and not (r.fatal_problems if lenient else r.problems)]
    return plans, without_duplicates([problem for result in results for problem in result.problems])


def compile_each(pipelines: Sequence[Pipeline], context: Context) -> list[Compiled]:
    """Compiles pipelines as `compile_pipelines` does, with the problems of each."""
    produced = ScriptTables(pipelines, context, lambda flow: _PipelineCompiler(None, context, produced).schema_of(flow))
    compiled: list[Compiled] = []
    for pipeline in pipelines:
        compiler = _PipelineCompiler(pipeline, context, produced)
        compiled.append(Compiled(pipeline, compiler.plan(), compiler.problems))
    _add_clashes(compiled)
    if not context.offline:
        runnable = [
            (result.plan, result) for result in compiled if result.plan is not None and not result.fatal_problems
        ]
        for problem, users in unusable_storages([plan for plan, _ in runnable]).items():
            for plan, result in runnable:
                if any(plan is user for user in users):
                    result.problems.append(problem)
    return compiled


def _add_clashes(compiled: Sequence[Compiled]) -> None:
    """Adds a problem to each pipeline that clashes with another, for example by the same name."""
    seen: dict[str, Pipeline] = {}
    checkpoints: dict[str, Plan] = {}
    catalogs: dict[str, Catalog] = {}
    for index, result in enumerate(compiled):
        if result.plan is None:
            continue
        clashes: list[HeliosError] = []
        if result.plan.pipeline in seen:
            clashes.append(same_identity_problem(result.plan, seen[result.plan.pipeline], result.pipeline))
        seen.setdefault(result.plan.pipeline, result.pipeline)
        clashes += shared_checkpoint(result.plan, checkpoints) + ambiguous_catalogs(result.plan, catalogs)
        result.problems.extend(clashes)
        for other in compiled[:index] if clashes else ():
            if other.plan is not None and plans_clash(result.plan, other.plan):
                other.problems.extend(clashes)


def infer_schema(flow: Flow, context: Context) -> Schema | None:
    """The columns of a flow; None if they are known only at run.

    Raises:
        CheckFailed: The flow has problems.
    """
    compiler = _PipelineCompiler(None, context, NO_TABLES)
    schema = compiler.schema_of(flow)
    if compiler.problems:
        raise CheckFailed(compiler.problems)
    return schema


def without_duplicates(problems: Iterable[HeliosError]) -> list[HeliosError]:
    """The problems without duplicates: a source or step that pipelines share has the same problem in each of them."""
    return list({str(problem): problem for problem in problems}.values())


class _PipelineCompiler:
    """Compiles one pipeline, or one flow if `pipeline` is None, and collects problems and reads."""

    def __init__(self, pipeline: Pipeline | None, context: Context, produced: WrittenTables) -> None:
        self.pipeline = pipeline
        self.context = context
        self.produced = produced
        self.problems: list[HeliosError] = []
        self.reads: list[ReadPlan] = []
        self.joins_by_commit_time: list[Join] = []

    def plan(self) -> Plan | None:
        """The plan; None if the kind of a source is unknown, or if the target cannot be resolved."""
        pipeline = self.pipeline
        assert pipeline is not None
        schema = self.schema_of(pipeline.stream)
        sink = pipeline.sink
        write = compiler_of(sink).write(self, sink, schema)
        sources = [read.source for read in self.reads]
        if not all(is_known(source) for source in sources):
            return None
        path, why = path_of(pipeline, sources)
        self.check(pipeline, path, sources)
        if write is None:
            return None
        self.problems += endless_loops(pipeline, self.reads, write)
        declared = sink.checkpoint_location
        identity = pipeline.name or write.default_name
        checkpoint = self.checkpoint(declared, sink, write, identity)
        former_checkpoint = None
        if pipeline.was and not declared:
            former_checkpoint = default_checkpoint(write.table.catalog, pipeline.was)
        self.drop_unresolved(write, [location for location in (checkpoint, former_checkpoint) if location])
        tables = [*(read.table for read in self.reads), write.table, write.quarantine]
        catalogs = dict.fromkeys(table.catalog for table in tables if table is not None)
        jars = [c for catalog in catalogs for c in components(catalog)]
        jars += [c for read in self.reads if read.store_folder for c in folder_components(read.store_folder.location)]
        jars += sink.jars
        jars += [*checkpoint_components(checkpoint), *(c for s in sources for c in (*source_kind(s).jars, *s.jars))]
        plan = Plan(
            pipeline=identity,
            was=pipeline.was,
            origin=pipeline.origin,
            stream=pipeline.stream,
            reads=tuple(self.reads),
            path=path,
            why=why,
            schema=schema,
            write=write,
            trigger=trigger_of(pipeline, sources) if path is not ReadPath.BATCH else None,
            checkpoint=checkpoint,
            former_checkpoint=former_checkpoint,
            catalogs=tuple(catalogs),
            components=tuple(dict.fromkeys(jars)),
            declared=pipeline,
            all_catalogs=tuple({**self.context.config.catalogs, **self.context.catalogs}.values()),
        )
        engine, engine_problems = engine_of(plan, self.context.config.native)
        self.problems += engine_problems
        return replace(plan, engine=engine, spill=spill_of(plan, self.context.config))

    def check(self, pipeline: Pipeline, path: ReadPath, sources: Sequence[Source]) -> None:
        """Adds the problems that depend on the sources, the steps and the sink together."""
        sink = pipeline.sink
        if path is ReadPath.STATEFUL:
            self.problems += [stateful_as_of(step) for step in self.joins_by_commit_time]
            self.problems += view_problems(pipeline) or [
                *endless_aggregate_problems(pipeline.stream, sink),
                *filtered_group_problems(pipeline.stream, sink),
                *distinct_aggregate_problems(pipeline.stream),
                *dedupe_problems(pipeline.stream),
            ]
        self.problems += compiler_of(sink).problems(self, pipeline, sink, path, sources)

    # sources and steps

    def schema_of(self, flow: Flow) -> Schema | None:
        """The columns of a flow. Adds the flow's reads and problems."""
        try:
            kind = source_kind(flow.source)
            mirrored = self.pipeline is not None and self.pipeline.sink.mirrors
            read, problems = kind.describe(flow.source, Surroundings(self.context, self.produced, mirrored))
            read = replace(read, store_folder=kind.store_folder(flow.source, self.context))
        except InputError as problem:
            read, problems = ReadPlan(source=flow.source), [problem]
        self.problems += problems
        self.reads.append(read)
        schema = read.schema
        for step in flow.steps:
            schema = self.schema_after(step, schema, flow)
        return schema

    def schema_after(self, step: Step, schema: Schema | None, flow: Flow) -> Schema | None:
        """The columns after a step. Adds the step's reads and problems."""
        other: Schema | None = None
        index = len(self.reads)
        if isinstance(step, (Join, Union)):
            other = self.schema_of(step.other)
            if isinstance(step, Union) and is_streaming(step.other) != is_streaming(flow):
                self.problems.append(
                    DeclarationError(
                        f"{step.text()}: one side is followed and the other is read once.",
                        where=step.origin,
                        fix="make both sides .incremental(), or neither.",
                    )
                )
        result, problems = infer(step, schema, other)
        time_problems = timed_join_problems(step, flow, schema, other)
        if isinstance(step, Join) and step.as_of is not None and not time_problems:
            self.store_as_of(step, index, other)
        self.problems += problems + time_problems + dedupe_without_watermark(step, flow, schema)
        return result

    def store_as_of(self, step: Join, index: int, right: Schema | None) -> None:
        """Stores in `reads` how the right side of a join as of a time is read.

        Args:
            index: The index of the right side's source in `reads`.
            right: The columns of the right side.
        """
        as_of = as_of_read(step, right)
        self.reads[index] = replace(self.reads[index], joined=f"as of {step.as_of}: {as_of.value}")
        if as_of is AsOfRead.COMMITS:
            self.joins_by_commit_time.append(step)

    # sinks

    def plan_table_write(self, sink: IcebergSink, schema: Schema | None) -> WritePlan | None:
        try:
            table = target_of(sink, self.context)
            quarantine = quarantine_of(sink, self.context)
        except InputError as problem:
            self.problems.append(problem)
            return None
        name, was = (self.pipeline.name, self.pipeline.was) if self.pipeline is not None else (None, None)
        offline = self.context.offline
        write, problems = plan_write(
            sink, table, quarantine, schema, reads=self.reads, offline=offline, name=name, was=was
        )
        self.problems += problems
        return write

    def table_problems(
        self, pipeline: Pipeline, sink: IcebergSink, path: ReadPath, sources: Sequence[Source]
    ) -> list[HeliosError]:
        return [
            *(problem for read in self.reads for problem in source_kind(read.source).problems(sink, read, path)),
            *change_problems(pipeline, sink),
            *pipeline_problems(pipeline, sink, path),
            *uncounted_rows(sink, sources),
            *(exactly_once_problems(pipeline, sink) if sink.demands_exactly_once else ()),
        ]

    def plan_output_write(self, sink: Output, schema: Schema | None) -> WritePlan | None:
        name = Identifier((sink.kind, sink.name))
        try:
            return plan_output(sink, self.context.resolve(name, None, sink.origin).catalog)
        except InputError as problem:
            self.problems.append(problem)
            return None

    # the checkpoint

    def checkpoint(self, declared: str | None, sink: Sink, write: WritePlan, identity: str) -> str:
        """The location of the checkpoint. Adds the problems of the location."""
        location = hadoop_uri(declared) if declared else default_checkpoint(write.table.catalog, identity)
        catalog = write.table.catalog
        example = f'.checkpoint("/shared/checkpoints/{file_name(identity, also="@")}")'
        if not location and not CATALOGS[catalog.type].temporary:
            self.problems.append(
                ConfigError(
                    f"catalog {catalog.name!r}: only its server knows where the warehouse is, so no location for a "
                    "checkpoint can be derived from it.",
                    where=sink.origin,
                    fix=f"give one: {example}, or a warehouse that is a URI.",
                )
            )
        scheme = urlsplit(location).scheme or "file"
        if location and scheme not in checkpoint_schemes():
            self.problems.append(
                ConfigError(
                    f"Spark cannot keep a checkpoint on {scheme}://.",
                    where=sink.origin,
                    fix=f"give one on {', '.join(checkpoint_schemes())}: {example}.",
                )
            )
        catalogs = [catalog, *(read.table.catalog for read in self.reads if read.table is not None)]
        reason = checkpoint_problem(location, catalogs)
        if reason:
            self.problems.append(
                ConfigError(
                    f"Spark cannot keep a checkpoint on {location}: {reason}.",
                    where=sink.origin,
                    fix=f"give one elsewhere: {example}.",
                )
            )
        return location

    def drop_unresolved(self, write: WritePlan, checkpoints: list[str]) -> None:
        """Drops the problems of the declared start if a checkpoint shows that the pipeline has started before."""
        if any(isinstance(problem, Unsettled) for problem in self.problems):
            from helios.table.readers import has_begun

            properties = pyiceberg_properties(write.table.catalog)
            if any(has_begun(location, properties) for location in checkpoints):
                self.problems = [problem for problem in self.problems if not isinstance(problem, Unsettled)]


class SinkCompiler(NamedTuple):
    """The functions that compile the sinks of one kind.

    Attributes:
        write: Returns the write plan; None if it cannot be made.
        problems: Returns the problems that depend on the sources, the steps and the sink together.
    """

    write: Callable[[_PipelineCompiler, Any, Schema | None], WritePlan | None]
    problems: Callable[[_PipelineCompiler, Pipeline, Any, ReadPath, Sequence[Source]], Iterable[HeliosError]]


TABLE_SINKS = SinkCompiler(_PipelineCompiler.plan_table_write, _PipelineCompiler.table_problems)
OUTPUT_SINKS = SinkCompiler(
    _PipelineCompiler.plan_output_write, lambda _, pipeline, sink, *__: output_problems(pipeline, sink)
)


def compiler_of(sink: Sink) -> SinkCompiler:
    """The functions that compile a sink: those for tables, or those for outputs, which keep no record."""
    return TABLE_SINKS if sink.iceberg is not None else OUTPUT_SINKS
