"""Reads the rows of files: each file by its own footer or header, with columns that match by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.schema_differences import undeclared_parts
from helios.sources.common.spark.types import any_of, by_name, cast, cast_nanos, castable
from helios.sources.files.declare import METADATA, FilesSource
from helios.sources.files.formats import FORMATS
from helios.sources.files.spark import bad_rows, partitions
from helios.sources.files.spark.columns import NANOS_AS_LONG, FileColumns, columns_of
from helios.sources.files.spark.csv_lines import read_csv
from helios.sources.files.spark.json_lines import read_json
from helios.sources.files.spark.listing import as_uri, loaded
from helios.sources.files.spark.reading import Group, Reading, reading_of
from helios.sources.files.spark.text_lines import PLAIN, SKIP_NO_FILE, read_text
from helios.sources.files.spark.text_numbers import leading_zeros_lost
from helios.spark.iceberg.failures import is_outage
from helios.spark.jvm.errors import innermost_message
from helios.spark.jvm.sql import JSON_TIMES, quoted, struct_of


def schema_of(
    context: SourceContext, source: FilesSource, files: Sequence[File], folders: Sequence[File] = ()
) -> StructType:
    """The columns of files: the declared ones, or those of all footers, headers and partition folders.

    Args:
        folders: More files, of which only the partition folders are used.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    return _with_added(source, reading_of(context, source, files, folders=folders).columns)


def read_files(
    context: SourceContext,
    source: FilesSource,
    files: Sequence[File],
    damaged: Mapping[File, str] | None = None,
    *,
    positioned: bool = False,
) -> DataFrame:
    """The rows of files as a batch; bad rows and bad files go to `context.rejected_input`.

    Args:
        files: The files; may be empty if a schema is declared, or was inferred before.
        damaged: The files that are known to be unreadable, with the causes.
        positioned: Whether each row carries its position in the hidden column `POSITION`.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    return rows_of(context, source, reading_of(context, source, files, damaged), positioned=positioned)


def rows_of(context: SourceContext, source: FilesSource, reading: Reading, *, positioned: bool = False) -> DataFrame:
    """The rows of a reading; see `read_files`."""
    _refuse_names_of_metadata(source, reading)
    _reject_bad_files(context, source, reading.bad)
    if not reading.groups:
        return context.spark.createDataFrame([], _with_added(source, reading.columns))
    fitted = [_fitted(group, reading, source) for group in reading.groups]
    may_be_bad = FORMATS[source.format].parsed or any(group.bad_conditions for group in fitted)
    finds_bad_rows = source.bad_row != "null" and may_be_bad
    if positioned:
        fitted = [group._replace(columns=[*group.columns, bad_rows.position()]) for group in fitted]
    dfs = [_rows(context.spark, source, reading, group, finds_bad_rows) for group in fitted]
    df = reduce(DataFrame.unionAll, dfs)
    if rejects.TEXT not in df.columns:
        return df
    return bad_rows.good_rows(df, source, context.rejected_input)


def _refuse_names_of_metadata(source: FilesSource, reading: Reading) -> None:
    """Refuses files that have a column with the name of a column of `.with_metadata`."""
    for name, _ in source.metadata:
        for group in reading.groups:
            if name.lower() in by_name(group.columns).keys() & by_name(reading.columns).keys():
                raise source.name_taken_error(name, group.files[0].path)


def _with_added(source: FilesSource, columns: StructType) -> StructType:
    """The columns together with the rescued column and the columns of `.with_metadata`."""
    rescued = [StructField(source.rescued, StringType())] if source.rescued else []
    ddl = ", ".join(f"{quoted(name)} {METADATA[metadata_name]}" for name, metadata_name in source.metadata)
    return StructType([*columns.fields, *rescued, *(struct_of(ddl).fields if ddl else [])])


class FittedGroup(NamedTuple):
    """A group of files, with the columns that are computed from its own columns.

    Attributes:
        columns: All columns of the reading, cast to the types of the reading.
        bad_conditions: The reasons why a row may be bad, each with its condition.
    """

    group: Group
    columns: list[Column]
    bad_conditions: list[tuple[str, Column]]


def _rows(
    spark: SparkSession, source: FilesSource, reading: Reading, fitted: FittedGroup, finds_bad_rows: bool
) -> DataFrame:
    """The rows of a group with all columns of the reading; with `finds_bad_rows`, also with the hidden columns."""
    group, columns, bad_conditions = fitted
    df = _as_stored(spark, source, group)
    if source.rescued:
        rescued = (
            _rescued(group.columns, reading) if source.rescued not in df.columns else F.col(quoted(source.rescued))
        )
        columns = [*columns, rescued.alias(source.rescued)]
    columns = [*columns, *_metadata(source, group, reading)]
    if not finds_bad_rows:
        return df.select(*columns)
    text, why = _verdict(bad_conditions, _row_as_text(source, group))
    if FORMATS[source.format].parsed:
        reason = F.col(rejects.WHY)
        line = F.coalesce(F.col(bad_rows.LINE), F.lit(""))  # a null text would mark a good row
        text, why = F.when(reason.isNotNull(), line).otherwise(text), F.coalesce(reason, why)
    file = F.col(bad_rows.FILE)
    if group.fast:  # a plain row is always good: the columns stay null without being computed
        text, why, file = (F.when(F.col(PLAIN).isNull(), column) for column in (text, why, file))
    return df.select(*columns, text.alias(rejects.TEXT), why.alias(rejects.WHY), file.alias(bad_rows.FILE))


def _as_stored(spark: SparkSession, source: FilesSource, group: Group) -> DataFrame:
    """The rows of a group as stored, each with its file; in parsed formats also with its line, and why it is bad."""
    if source.format == "text":
        return read_text(spark, source, group.files)
    if source.format == "csv":
        return read_csv(spark, source, group.files, group.stored, group.typed or group.columns, fast=group.fast)
    if source.format == "json":
        return read_json(spark, source, group.files, group.stored, group.typed or group.columns, fast=group.fast)
    if group.nanos:
        spark.conf.set(NANOS_AS_LONG, "true")  # no option of Spark's reader does this
    options = {**source.reader_options(), **SKIP_NO_FILE}
    reader = spark.read.format(source.format).options(**options).schema(group.stored)
    return loaded(spark, reader, group.files).select("*", *bad_rows.origin())


def read_failure(context: SourceContext, source: FilesSource, file: File) -> str:
    """Reads a file to its end, and returns the reason why it cannot be read; empty if it can be read."""
    try:
        [result] = columns_of(context.spark, source, [file])
        if result.cause:
            return result.cause
        for group in reading_of(context, source, [file]).groups:
            _as_stored(context.spark, source, group).write.format("noop").mode("overwrite").save()
    except (Py4JError, PySparkException) as error:
        if is_outage(error):
            raise
        return innermost_message(error)
    return ""


def _fitted(group: Group, reading: Reading, source: FilesSource) -> FittedGroup:
    """Computes the columns of a reading from the columns of a group, with the reasons why a row may be bad."""
    file_fields, partition_columns = by_name(group.columns), by_name(reading.partition_columns)
    columns: list[Column] = []
    bad_conditions: list[tuple[str, Column]] = []
    for field in reading.columns.fields:
        file_field = file_fields.get(field.name.lower())
        why = f"{field.name} does not fit {field.dataType.simpleString()}"
        if field.name.lower() in partition_columns:
            text = partitions.value(field.name, source.path, [file.path for file in group.files])
            value, bad = cast(text, StringType(), field.dataType)
            value = _inferred(value, text, field, reading, bad_conditions)
            if file_field is not None and castable(file_field.dataType, field.dataType):
                file_value, unfit = _cast(group, file_field, field.dataType)
                differs = value.isNotNull() & F.col(quoted(file_field.name)).isNotNull() & ~value.eqNullSafe(file_value)
                bad_conditions.append((f"{field.name} differs from the value in the folder name", differs))
                if unfit is not None:
                    bad_conditions.append((why, unfit))
                value = F.coalesce(value, file_value)
        elif file_field is None:
            value, bad = F.lit(None).cast(field.dataType), None
        elif file_field.name in group.nanos:
            value, bad = cast_nanos(F.col(quoted(file_field.name)), file_field.dataType, field.dataType)
            why = f"{field.name}, in nanoseconds, does not fit {field.dataType.simpleString()} (bigint does)"
        else:
            value, bad = _cast(group, file_field, field.dataType)
            if source.format == "csv":
                value = _inferred(value, F.col(quoted(file_field.name)), field, reading, bad_conditions)
        columns.append(value.alias(field.name))
        if bad is not None:
            bad_conditions.append((why, bad))
    return FittedGroup(group, columns, bad_conditions)


def _inferred(
    value: Column, text: Column, field: StructField, reading: Reading, bad_conditions: list[tuple[str, Column]]
) -> Column:
    """The value of a column; null if a text would lose leading zeros as an inferred number: the row is bad then."""
    lost_zeros = leading_zeros_lost(text, field) if field.name.lower() in reading.inferred else None
    if lost_zeros is None:
        return value
    bad_conditions.append(lost_zeros)
    _, loses_zeros = lost_zeros
    return F.when(~loses_zeros, value)


def _cast(group: Group, file_field: StructField, wanted: DataType) -> tuple[Column, Column | None]:
    """Casts a column of a group; also returns the condition that a value does not fit. A plain row needs no cast."""
    value, bad = cast(F.col(quoted(file_field.name)), file_field.dataType, wanted)
    if not group.fast:
        return value, bad
    plain_row = F.col(PLAIN)
    unfit = plain_row.isNull() & bad if bad is not None else None
    return F.when(plain_row.isNotNull(), plain_row[file_field.name]).otherwise(value), unfit


def _row_as_text(source: FilesSource, group: Group) -> Column:
    """The line of a row; if the format has no lines, the fields of the row as JSON."""
    if FORMATS[source.format].parsed:
        return F.col(bad_rows.LINE)
    row = F.struct(*[F.col(quoted(field.name)) for field in group.columns.fields])
    return F.to_json(row, {"ignoreNullFields": "false", **JSON_TIMES})


def _metadata(source: FilesSource, group: Group, reading: Reading) -> list[Column]:
    """The columns of `.with_metadata`."""
    if not source.metadata:
        return []
    values = {
        "_file": bad_rows.uri(),
        "_modified": bad_rows.modified(),
        "_arrived": _arrived(group, reading.planned_at or {}),
    }
    return [values[metadata_name].alias(name) for name, metadata_name in source.metadata]


def _arrived(group: Group, planned_at: Mapping[str, int]) -> Column:
    """The time at which the batch of each row's file was planned; null if the time is unknown."""
    times: dict[int | None, list[str]] = {}
    for file in group.files:
        times.setdefault(planned_at.get(file.path), []).append(as_uri(file.path))
    arrived = F.lit(None).cast("timestamp")
    for millis, uris in times.items():
        time = F.expr(f"timestamp_millis({millis})") if millis else F.lit(None).cast("timestamp")
        arrived = time if len(times) == 1 else F.when(bad_rows.uri().isin(uris), time).otherwise(arrived)
    return arrived


def _verdict(bad_conditions: list[tuple[str, Column]], text: Column) -> tuple[Column, Column]:
    """The text of a bad row (null for a good row), and the reasons why the row is bad."""
    null = F.lit(None).cast("string")
    if not bad_conditions:
        return null, null
    reasons = [F.when(bad, F.lit(why)) for why, bad in bad_conditions]
    return F.when(any_of([bad for _, bad in bad_conditions]), text), F.concat_ws(", ", *reasons)


def _rescued(file_columns: StructType, reading: Reading) -> Column:
    """The undeclared fields as JSON; null if a row has none."""
    undeclared = undeclared_parts(
        [(field, F.col(quoted(field.name))) for field in file_columns.fields], reading.columns
    )
    if undeclared is None:
        return F.lit(None).cast("string")
    fields, has_fields = undeclared
    return F.when(has_fields, F.to_json(fields, JSON_TIMES))


def _reject_bad_files(context: SourceContext, source: FilesSource, bad: Sequence[FileColumns]) -> None:
    """Adds the files that cannot be read to the rejected input, from which they go to the quarantine."""
    context.rejected_input.unreadable = {file.file: file.cause for file in bad}
    if not bad:
        return
    step = f"{source.label()}.on_bad_file"
    values = [(file.file.path, file.file.size, file.file.modified, file.cause, step) for file in bad]
    columns = "file string, size bigint, modified bigint, reason string, step string"
    rows = context.spark.createDataFrame(values, columns)
    payload = F.to_json(F.struct("file", "size", "modified")).alias("payload")
    context.rejected_input.rejected_rows.append(rows.select(payload, "reason", "step"))
