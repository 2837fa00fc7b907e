"""`--from`: a table or a folder that is read in place of a source which no longer has the rows."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.errors import InputError, NotFound
from helios.plan.nodes import Plan
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import Source, current_rows
from helios.sources.kinds import position_of
from helios.spark.backfill.live import Standing, rolled_back_error
from helios.spark.backfill.recompute import OtherRows
from helios.spark.iceberg import tables
from helios.spark.jvm.sql import quoted

FORMATS = ("parquet", "orc", "avro")
"""The file formats that can replace a source other than files: their footers name the columns."""


def other_rows(spark: SparkSession, plan: Plan, other: TableName | str, standing: Standing) -> OtherRows:
    """The rows of `--from`, with the columns of the source.

    Args:
        spark: The session.
        plan: The pipeline, which follows one source.
        other: The table, or the path of the folder.
        standing: How far the pipeline has come; the source's own table is read only up to there.
    """
    if isinstance(other, str):
        return lambda source: _fitted(source, _folder(spark, plan, source, other), other)
    return lambda source: _fitted(source, _table(spark, plan, other, standing), other.text)


def _table(spark: SparkSession, plan: Plan, name: TableName, standing: Standing) -> DataFrame:
    table = tables.load_table(spark, name)
    if table is None:
        raise NotFound(f"--from {name.text}: there is no such table.")
    own = next((entry for entry in standing.entries if entry.get("uuid") == str(table.uuid())), None)
    if own is None:
        return spark.table(name.sql)
    if standing.record.rolled_back:
        raise rolled_back_error(plan, f"--from {name.text}, its own source,")
    at = position_of(own.get("place"))
    snapshot = at[1].snapshot if at is not None and not at[1].partial else None
    if snapshot is None or table.snapshot(snapshot) is None:
        raise InputError(
            f"--from {name.text}: the pipeline stands within a snapshot of it, or at one that has expired.",
            fix="let the pipeline read on, and start again.",
        )
    return spark.read.option("versionAsOf", snapshot).table(name.sql)


def _folder(spark: SparkSession, plan: Plan, source: Source, folder: str) -> DataFrame:
    read = source.read_plan
    if read.source.overlaps(folder):
        raise InputError(
            f"--from {folder} is in the folder of {read.name}, or contains it: files there that the pipeline has not "
            "read yet would be in the table twice.",
            where=plan.origin,
            fix="copy the files that the pipeline has read into another folder, and name that one.",
        )
    declared = read.source.elsewhere(folder)
    if declared is not None:
        reads = tuple(replace(one, source=declared, place=None) if one is read else one for one in plan.reads)
        return current_rows(SourceContext(plan=replace(plan, reads=reads), spark=spark), plan.reads.index(read))
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder)
        path = files.select("path").first()
    except AnalysisException as error:
        raise NotFound(f"--from {folder}: there is no such folder, and no such table.") from error
    kind = path[0].rpartition(".")[2].lower() if path is not None else ""
    if kind not in FORMATS:
        raise InputError(
            f"--from {folder}: its files are not of {', '.join(FORMATS)}, which say their columns.",
            fix="write them as one of these, or into a table.",
        )
    return spark.read.format(kind).option("recursiveFileLookup", "true").load(folder)


def _fitted(source: Source, df: DataFrame, other: str) -> DataFrame:
    """Rows with the columns of a source, in their order.

    Raises:
        InputError: A column is missing, or of another type.
    """
    for condition in source.read_plan.source.conditions:
        df = df.where(condition)
    expected = source.empty(df.sparkSession).schema
    held = {field.name.lower(): field for field in df.schema.fields}
    for field in expected.fields:
        there = held.get(field.name.lower())
        kind = field.dataType.simpleString()
        if there is None:
            raise InputError(f"--from {other} has no column {field.name!r}, which {source.read_plan.name} has.")
        if there.dataType.simpleString() != kind:
            raise InputError(
                f"--from {other}: column {field.name!r} is {there.dataType.simpleString()}, and {kind} in "
                f"{source.read_plan.name}."
            )
    return df.select(*[df[quoted(held[field.name.lower()].name)].alias(field.name) for field in expected.fields])
