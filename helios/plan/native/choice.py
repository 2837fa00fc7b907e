"""Chooses the engine of a pipeline, and says why."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from helios.errors import HeliosError, InputError, Origin
from helios.native.program import NotNative
from helios.plan.native.engine import Engine

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.plan.nodes import Plan, WritePlan

PACKAGE = "polars"
"""The package that the extra `native` installs."""
CLIENT_PROPERTIES = ("s3.", "client.", "adls.", "gcs.", "hadoop.fs.", "io-impl")
"""The prefixes of the properties that configure Iceberg's own clients of object stores."""


def engine_of(plan: Plan, setting: str) -> tuple[Engine, list[HeliosError]]:
    """The engine of a pipeline, and the problem if the setting requires the columnar engine, but Spark is chosen.

    Args:
        setting: `[spark] native`: "auto", "off" or "require".
    """
    if setting == "off":
        return Engine(), []
    try:
        if find_spec(PACKAGE) is None:
            raise NotNative("helios-iceberg[native] is not installed")
        _check(plan)
    except NotNative as reason:
        engine = Engine(False, str(reason), setting)
        return engine, [not_native_problem(engine, plan.pipeline, plan.origin)] if setting == "require" else []
    return Engine(True, "", setting), []


def not_native_problem(engine: Engine, pipeline: str, where: Origin | None) -> InputError:
    """The problem of a pipeline that must run on the columnar engine, but would run on Spark."""
    return InputError(
        f'[spark] native = "require", and {pipeline} runs on Spark, because {engine.why}.',
        where=where,
        fix='change that in the pipeline, or set native = "auto".',
    )


def _check(plan: Plan) -> None:
    """Raises `NotNative` for a plan that the engine does not support."""
    if len(plan.reads) != 1:
        raise NotNative("it reads several sources")
    (read,) = plan.reads
    if isinstance(read.source.engine_columns_or_reason, str):
        raise NotNative(read.source.engine_columns_or_reason)
    _check_sink(plan.write)
    for table in (read.table, plan.write.table):
        if table is not None and table.catalog.storage is not None and table.catalog.storage.type != "local":
            refuse_catalog(table.catalog)
    if not plan.path.columnar:
        raise NotNative(f"its read path is {plan.path.value}")
    if read.schema is None:
        raise NotNative("the columns of the source are known only at run")
    if any(str(column.kind) == "unknown" for column in read.schema.columns):
        raise NotNative("the types of the source's columns are known only at run")
    # Imported late, because the checks above already exclude most plans.
    from helios.native.partitions import PARTITION_TYPES
    from helios.plan.native.steps import program_of
    from helios.plan.native.upserts import check_upsert

    program = program_of(plan.stream, read.schema)
    if (upsert := plan.write.mode.upsert) is not None:
        if read.table is None:
            raise NotNative("the native engine upserts only rows that it reads from an Iceberg table")
        check_upsert(plan.write, upsert, dict(program.columns))
    kinds = {name.lower(): kind.partition("(")[0] for name, kind in program.columns}
    for field in plan.write.partitioning or ():
        kind = kinds.get(field.column.lower())
        if kind not in PARTITION_TYPES.get(field.transform, ()):
            raise NotNative(f"the table is partitioned by {field}, which the engine does not support for {kind}")


def refuse_catalog(catalog: Catalog) -> None:
    """Raises `NotNative` for a catalog on an object store with settings that only Iceberg's own client supports."""
    prefixes = (*CLIENT_PROPERTIES, "py-io-impl")
    key = next((key for key, _ in catalog.properties if key.startswith(prefixes)), None)
    if key is not None:
        raise NotNative(f"the catalog {catalog.name} has the property {key}")
    if catalog.type == "glue" and catalog.option("profile"):
        raise NotNative(f"the catalog {catalog.name} has a profile")


def _check_sink(write: WritePlan) -> None:
    """Raises `NotNative` for a sink that the engine does not support."""
    sink = write.sink.iceberg
    if sink is None:
        raise NotNative("it does not write an Iceberg table")
    if not sink.mode.traits.columnar:
        raise NotNative(f"it writes by {sink.mode.text()}")
    for feature, declared in (
        ("an audit", sink.audits),
        ("a route", sink.many_tables),
        ("a quarantine", write.quarantine),
    ):
        if declared:
            raise NotNative(f"the sink has {feature}")
    if write.file_format != "parquet":
        raise NotNative(f"it writes {write.file_format}")
