"""Reads the table or the folder of `--from` instead of a source that no longer has the rows."""

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
from helios.spark.backfill.live import LivePosition, rolled_back_error
from helios.spark.backfill.recompute import OtherRows
from helios.spark.iceberg import tables
from helios.spark.jvm.sql import quoted

FORMATS = ("parquet", "orc", "avro")
"""The formats of folders that can replace a source which is not a folder: such files contain their schema."""


def other_rows(spark: SparkSession, plan: Plan, other: TableName | str, live_position: LivePosition) -> OtherRows:
    """Returns a function that reads the rows of `--from`, with the columns of the source.

    Args:
        plan: The pipeline, which follows one source.
        live_position: How far the pipeline has read. The source's own table is read only up to there.
    """
    if isinstance(other, str):
        return lambda source: _with_source_columns(source, _folder(spark, plan, source, other), other)
    return lambda source: _with_source_columns(source, _table(spark, plan, other, live_position), other.text)


def _table(spark: SparkSession, plan: Plan, name: TableName, live_position: LivePosition) -> DataFrame:
    table = tables.load_table(spark, name)
    if table is None:
        raise NotFound(f"--from {name.text}: there is no such table.")
    own_entry = next((entry for entry in live_position.entries if entry.get("uuid") == str(table.uuid())), None)
    if own_entry is None:
        return spark.table(name.sql)
    if live_position.record.rolled_back:
        raise rolled_back_error(plan, f"--from {name.text}, its own source,")
    kind_and_position = position_of(own_entry.get("place"))
    position = kind_and_position[1] if kind_and_position is not None else None
    snapshot = position.snapshot if position is not None and not position.partial else None
    if snapshot is None or table.snapshot(snapshot) is None:
        raise InputError(
            f"--from {name.text}: the pipeline has read only a part of the snapshot, or the snapshot has expired.",
            fix="let the pipeline read on, then run the backfill again.",
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
    moved_source = read.source.in_folder(folder)
    if moved_source is not None:
        moved_read = replace(read, source=moved_source, store_folder=None)
        reads = tuple(moved_read if each is read else each for each in plan.reads)
        return current_rows(SourceContext(plan=replace(plan, reads=reads), spark=spark), plan.reads.index(read))
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder)
        path = files.select("path").first()
    except AnalysisException as error:
        raise NotFound(f"--from {folder}: there is no such folder, and no such table.") from error
    file_format = path[0].rpartition(".")[2].lower() if path is not None else ""
    if file_format not in FORMATS:
        raise InputError(
            f"--from {folder} must be a folder of files that contain their schema: {', '.join(FORMATS)}.",
            fix="write the rows in one of these formats, or into a table.",
        )
    return spark.read.format(file_format).option("recursiveFileLookup", "true").load(folder)


def _with_source_columns(source: Source, df: DataFrame, other: str) -> DataFrame:
    """The rows that meet the conditions of a source, with its columns in its order."""
    for condition in source.read_plan.source.conditions:
        df = df.where(condition)
    expected = source.empty(df.sparkSession).schema
    present = {field.name.lower(): field for field in df.schema.fields}
    for field in expected.fields:
        other_field = present.get(field.name.lower())
        expected_type = field.dataType.simpleString()
        if other_field is None:
            raise InputError(f"--from {other} has no column {field.name!r}, which {source.read_plan.name} has.")
        if other_field.dataType.simpleString() != expected_type:
            raise InputError(
                f"--from {other}: column {field.name!r} is {other_field.dataType.simpleString()}, and "
                f"{expected_type} in {source.read_plan.name}."
            )
    return df.select(*[df[quoted(present[field.name.lower()].name)].alias(field.name) for field in expected.fields])
