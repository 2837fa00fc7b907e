"""Implements `pipeline.check()`, `.plan()` and `.run()`, and `stream.schema()` and `.preview()`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helios.catalog.spec import Catalog
from helios.config import Config, load
from helios.errors import CheckFailed, HeliosError
from helios.model.flow import Flow, Pipeline, flows
from helios.model.preview import Preview
from helios.model.sink import IcebergSink
from helios.plan import Context, Plan, compile_pipelines, infer_schema
from helios.plan.compile import NOT_FATAL
from helios.plan.typing.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.spark.run.run import PipelineRun


def context_for(script_file: str, catalogs: dict[str, Catalog] | None = None, profile: str | None = None) -> Context:
    """The context in which a script's pipelines are compiled.

    The configuration file is the nearest one, in the script's folder or above. Without a script file, as in a
    notebook, the search begins in the working directory.
    """
    folder = Path(script_file).resolve().parent if os.path.exists(script_file) else Path.cwd()
    return Context(config=load(folder, profile), catalogs=catalogs or {})


def catalogs_in(flow: Flow, sink: IcebergSink | None = None) -> dict[str, Catalog]:
    """The `Catalog` values in the sources and the sink of a pipeline, by name."""
    references = [inner.source.reference for inner in flows(flow)]
    catalogs = [catalog for _, catalog in filter(None, references)]
    if sink is not None:
        catalogs.append(sink.catalog)
    return {catalog.name: catalog for catalog in catalogs if isinstance(catalog, Catalog)}


def module_catalogs() -> dict[str, Catalog]:
    """The module-level `Catalog` values of the notebook or script that called Helios, by catalog name."""
    package = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    values = frame.f_globals.values() if frame is not None else ()
    return {value.name: value for value in values if isinstance(value, Catalog)}


def require_runnable(plans: list[Plan], problems: list[HeliosError]) -> list[Plan]:
    """Returns the plans; raises `CheckFailed` if a problem makes a run impossible."""
    fatal = [problem for problem in problems if not isinstance(problem, NOT_FATAL)]
    if fatal:
        raise CheckFailed(fatal)
    return plans


def already_running_problems(plan: Plan) -> list[HeliosError]:
    """A list with the problem that another driver runs the pipeline, or an empty list. Spark is not needed."""
    from helios.catalog.conf import pyiceberg_properties
    from helios.table.lease import running_driver_error

    if not plan.checkpoint:
        return []
    other_driver = running_driver_error(plan.checkpoint, pyiceberg_properties(plan.write.table.catalog), plan.origin)
    return [other_driver] if other_driver is not None else []


class DefaultEngine:
    """The engine that pipelines and streams call for `check()`, `plan()`, `run()`, `schema()` and `preview()`."""

    def check(self, pipeline: Pipeline) -> None:
        from helios.sources.common.absent import absent_source_problems

        plans, problems = compile_pipelines([pipeline], self._context(pipeline))
        if problems := [*problems, *absent_source_problems(plans)]:
            raise CheckFailed(problems)

    def plan(self, pipeline: Pipeline) -> Plan:
        plans, problems = compile_pipelines([pipeline], self._context(pipeline))
        if problems:
            raise CheckFailed(problems)
        from helios.plan.backlog import with_backlogs

        return with_backlogs(plans[0])

    def run(
        self, pipeline: Pipeline, once: bool, spark: SparkSession | None, again: bool, beside: Sequence[str]
    ) -> PipelineRun:
        context = self._context(pipeline)
        plan = require_runnable(*compile_pipelines([pipeline], context, lenient=True))[0]
        for problem in already_running_problems(plan):
            raise problem
        from helios.spark.run.run import PipelineRun
        from helios.spark.session.user_code import send_declaring_module

        session = self._session(context.config, [plan], spark)
        send_declaring_module(pipeline.origin.file, session)
        return PipelineRun(plan, session, once=once, again=again, beside=beside).start()

    def schema(self, flow: Flow) -> Schema | None:
        return infer_schema(flow, self._flow_context(flow))

    def rows_of_frame(self, frame: Any, declared: str | None) -> tuple[str, tuple[tuple[Any, ...], ...]]:
        from helios.plan.frames import rows_of

        return rows_of(frame, declared)

    def preview(self, flow: Flow, rows: int, spark: SparkSession | None) -> Preview:
        from helios.iceberg import Iceberg

        context = self._flow_context(flow)
        # This pipeline never runs: the preview needs only its reads and its conf.
        pipeline = flow >> Iceberg.sink("helios.preview", catalog=Catalog.memory("helios_preview"))
        plans, problems = compile_pipelines([pipeline], context, lenient=True)
        plan = require_runnable(plans, problems)[0]
        from helios.sources.common.spark.context import SourceContext
        from helios.sources.common.spark.past import past_until_now
        from helios.sources.common.spark.protocol import current_rows
        from helios.spark.iceberg.scan_tasks import scan_task_scope
        from helios.spark.steps.build import build

        session = self._session(context.config, [plan], spark)
        with scan_task_scope():
            sources = SourceContext(plan=plan, spark=session)
            df = build(
                plan, lambda index, _: current_rows(sources, index), lambda index: past_until_now(sources, index)
            ).df
            return Preview(df.limit(rows).toArrow())

    def _context(self, pipeline: Pipeline) -> Context:
        catalogs = {**module_catalogs(), **catalogs_in(pipeline.stream, pipeline.sink.iceberg)}
        return context_for(pipeline.origin.file, catalogs)

    def _flow_context(self, flow: Flow) -> Context:
        return context_for(flow.origin.file, {**module_catalogs(), **catalogs_in(flow)})

    def _session(self, config: Config, plans: list[Plan], spark: SparkSession | None) -> SparkSession:
        from helios.spark.session import session

        return session.for_run(config, plans, spark)
