"""Which engine runs a pipeline, and why."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from helios.errors import HeliosError, InputError, Origin
from helios.model.modes import Append, OverwritePartitions, Upsert
from helios.native.program import NotNative
from helios.plan.native.engine import Engine

if TYPE_CHECKING:
    from helios.plan.nodes import Plan, WritePlan

NEEDS = "polars"
"""The package that the extra `native` installs."""


def engine_of(plan: Plan, setting: str) -> tuple[Engine, list[HeliosError]]:
    """The engine of a pipeline, and the problem where another one is required.

    Args:
        plan: The pipeline.
        setting: `[spark] native`: "auto", "off" or "require".
    """
    if setting == "off":
        return Engine(), []
    try:
        if find_spec(NEEDS) is None:
            raise NotNative("helios[native] is not installed")
        _check(plan)
    except NotNative as reason:
        engine = Engine(False, str(reason), setting)
        return engine, [required(engine, plan.pipeline, plan.origin)] if setting == "require" else []
    return Engine(True, "", setting), []


def required(engine: Engine, pipeline: str, where: Origin | None) -> InputError:
    """The problem of a pipeline that the columnar engine must run, and does not."""
    return InputError(
        f'[spark] native = "require", and {pipeline} runs on Spark, because {engine.why}.',
        where=where,
        fix='take that away, or set native = "auto".',
    )


def _check(plan: Plan) -> None:
    """Raises `NotNative` for what the engine does not do."""
    if len(plan.reads) != 1:
        raise NotNative("it reads several sources")
    (read,) = plan.reads
    if isinstance(read.source.file_columns, str):
        raise NotNative(read.source.file_columns)
    _check_sink(plan.write)
    if plan.path.value not in ("batch", "snapshot ranges") or plan.view is not None:
        raise NotNative(f"its path is {plan.path.value}")
    if read.schema is None:
        raise NotNative("the columns of the source are known only at run")
    # Only where the engine is asked for.
    from helios.native.partitions import TAKES
    from helios.plan.native.steps import program_of
    from helios.plan.native.upserts import check_upsert

    program = program_of(plan.stream, read.schema)
    if plan.write.mode.traits.upserts:
        check_upsert(plan.write, dict(program.columns))
    kinds = {name.lower(): kind.partition("(")[0] for name, kind in program.columns}
    for field in plan.write.partitioning or ():
        kind = kinds.get(field.column.lower())
        if kind not in TAKES.get(field.transform, ()):
            raise NotNative(f"the table is partitioned by {field}, and it does not partition by that of {kind}")


def _check_sink(write: WritePlan) -> None:
    sink = write.sink
    if write.output is not None:
        raise NotNative("it writes no Iceberg table")
    if sink.mode.call not in (Append.call, OverwritePartitions.call, Upsert.call):
        raise NotNative(f"it writes by {sink.mode.text()}")
    for what, asked in (
        ("an audit", sink.audits),
        ("a route", sink.many_tables),
        ("a quarantine", write.quarantine),
        ("a sort order", sink.sort),
        ("a distribution", sink.distributes),
    ):
        if asked:
            raise NotNative(f"the sink has {what}")
    if write.file_format != "parquet":
        raise NotNative(f"it writes {write.file_format}")
