"""The rows of files: each file is read by its own footer or header, and columns are matched by name."""

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
from helios.sources.common.spark.types import any_of, by_name, cast, cast_nanos, castable, leftovers
from helios.sources.files.declare import METADATA, FilesSource
from helios.sources.files.formats import FORMATS
from helios.sources.files.spark import bad_rows, partitions
from helios.sources.files.spark.columns import NANOS_AS_LONG, FileColumns, columns_of
from helios.sources.files.spark.csv_lines import read_csv
from helios.sources.files.spark.json_lines import read_json
from helios.sources.files.spark.listing import as_uri, loaded
from helios.sources.files.spark.reading import Group, Reading, reading_of
from helios.sources.files.spark.text_lines import PLAIN, SKIP_NO_FILE, read_text
from helios.sources.files.spark.text_numbers import zeros_lost
from helios.spark.iceberg.failures import is_outage
from helios.spark.jvm.errors import cause_of
from helios.spark.jvm.sql import JSON_TIMES, quoted, struct_of


def schema_of(
    context: SourceContext, source: FilesSource, files: Sequence[File], folders: Sequence[File] = ()
) -> StructType:
    """The columns of files: the declared ones, or those of all footers, headers and partition folders.

    Args:
        context: What the sources of the run share.
        source: The source.
        files: The files.
        folders: More files; only their folders matter.

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
        context: What the sources of the run share.
        source: The source.
        files: The files. They may be empty if a schema is declared, or was inferred before.
        damaged: The files that are known to be unreadable, with their causes.
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
    may_be_bad = FORMATS[source.format].parsed or any(group.doubtful for group in fitted)
    judged = source.bad_row != "null" and may_be_bad
    if positioned:
        fitted = [group._replace(columns=[*group.columns, bad_rows.position()]) for group in fitted]
    parts = [_rows(context.spark, source, reading, group, judged) for group in fitted]
    df = reduce(DataFrame.unionAll, parts)
    if rejects.TEXT not in df.columns:
        return df
    return bad_rows.kept(df, source, context.rejected_input)


def _refuse_names_of_metadata(source: FilesSource, reading: Reading) -> None:
    """Refuses columns of files that have the name of a column of `.with_metadata`."""
    for name, _ in source.metadata:
        for group in reading.groups:
            if name.lower() in by_name(group.own).keys() & by_name(reading.columns).keys():
                raise source.name_taken_error(name, group.files[0].path)


def _with_added(source: FilesSource, columns: StructType) -> StructType:
    """The columns, with the rescued column and those of `.with_metadata`."""
    rescued = [StructField(source.rescued, StringType())] if source.rescued else []
    ddl = ", ".join(f"{quoted(name)} {METADATA[what]}" for name, what in source.metadata)
    return StructType([*columns.fields, *rescued, *(struct_of(ddl).fields if ddl else [])])


class Fitted(NamedTuple):
    """A group of files with the columns that are read from them.

    Attributes:
        group: The group.
        columns: The columns, cast to the types of the reading.
        doubtful: The reasons why a row may be bad, each with its condition.
    """

    group: Group
    columns: list[Column]
    doubtful: list[tuple[str, Column]]


def _rows(spark: SparkSession, source: FilesSource, reading: Reading, fitted: Fitted, judged: bool) -> DataFrame:
    """The rows of a group with all columns of the reading; if `judged`, also with the hidden columns of bad rows."""
    group, columns, doubtful = fitted
    df = _as_stored(spark, source, group)
    if source.rescued:
        rescued = _rescued(group.own, reading) if source.rescued not in df.columns else F.col(quoted(source.rescued))
        columns = [*columns, rescued.alias(source.rescued)]
    columns = [*columns, *_metadata(source, group, reading)]
    if not judged:
        return df.select(*columns)
    text, why = _verdict(doubtful, _row_as_text(source, group))
    if FORMATS[source.format].parsed:
        reason = F.col(rejects.WHY)
        line = F.coalesce(F.col(bad_rows.LINE), F.lit(""))  # not null, as a null text marks a good row
        text, why = F.when(reason.isNotNull(), line).otherwise(text), F.coalesce(reason, why)
    file = F.col(bad_rows.FILE)
    if group.plain:  # a plain row is good: these columns stay null, and cost nothing
        text, why, file = (F.when(F.col(PLAIN).isNull(), column) for column in (text, why, file))
    return df.select(*columns, text.alias(rejects.TEXT), why.alias(rejects.WHY), file.alias(bad_rows.FILE))


def _as_stored(spark: SparkSession, source: FilesSource, group: Group) -> DataFrame:
    """The rows of a group with their own columns and file; rows of text also with the line, and why it is bad."""
    if source.format == "text":
        return read_text(spark, source, group.files)
    if source.format == "csv":
        return read_csv(spark, source, group.files, group.stored, group.typed or group.own, fast=group.plain)
    if source.format == "json":
        return read_json(spark, source, group.files, group.stored, group.typed or group.own, fast=group.plain)
    if group.nanos:
        spark.conf.set(NANOS_AS_LONG, "true")  # Spark has no option of a reader for this
    options = {**source.reader_options(), **SKIP_NO_FILE}
    reader = spark.read.format(source.format).options(**options).schema(group.stored)
    return loaded(spark, reader, group.files).select("*", *bad_rows.origin())


def damage(context: SourceContext, source: FilesSource, file: File) -> str:
    """Reads a file to its end, and returns the reason why it cannot be read; empty if it can."""
    try:
        [result] = columns_of(context.spark, source, [file])
        if result.cause:
            return result.cause
        for group in reading_of(context, source, [file]).groups:
            _as_stored(context.spark, source, group).write.format("noop").mode("overwrite").save()
    except (Py4JError, PySparkException) as error:
        if is_outage(error):
            raise
        return cause_of(error)
    return ""


def _fitted(group: Group, reading: Reading, source: FilesSource) -> Fitted:
    """The columns of a reading, made from those of a group, and the reasons why a row may be bad."""
    own_fields, keys = by_name(group.own), by_name(reading.keys)
    columns: list[Column] = []
    doubtful: list[tuple[str, Column]] = []
    for field in reading.columns.fields:
        own = own_fields.get(field.name.lower())
        why = f"{field.name} does not fit {field.dataType.simpleString()}"
        if field.name.lower() in keys:
            text = partitions.value(field.name, source.path, [file.path for file in group.files])
            value, bad = cast(text, StringType(), field.dataType)
            value = _inferred(value, text, field, reading, doubtful)
            if own is not None and castable(own.dataType, field.dataType):
                stored, unfit = _cast(group, own, field.dataType)
                differs = value.isNotNull() & F.col(quoted(own.name)).isNotNull() & ~value.eqNullSafe(stored)
                doubtful.append((f"{field.name} is not as in the name of the file's folder", differs))
                if unfit is not None:
                    doubtful.append((why, unfit))
                value = F.coalesce(value, stored)
        elif own is None:
            value, bad = F.lit(None).cast(field.dataType), None
        elif own.name in group.nanos:
            value, bad = cast_nanos(F.col(quoted(own.name)), own.dataType, field.dataType)
            why = f"{field.name}, in nanoseconds, does not fit {field.dataType.simpleString()} (bigint does)"
        else:
            value, bad = _cast(group, own, field.dataType)
            if source.format == "csv":
                value = _inferred(value, F.col(quoted(own.name)), field, reading, doubtful)
        columns.append(value.alias(field.name))
        if bad is not None:
            doubtful.append((why, bad))
    return Fitted(group, columns, doubtful)


def _inferred(
    value: Column, text: Column, field: StructField, reading: Reading, doubtful: list[tuple[str, Column]]
) -> Column:
    """The value of a column. If its type is inferred, a text that would lose leading zeros is null and doubtful."""
    doubt = zeros_lost(text, field) if field.name.lower() in reading.inferred else None
    if doubt is None:
        return value
    doubtful.append(doubt)
    _, loses_zeros = doubt
    return F.when(~loses_zeros, value)


def _cast(group: Group, own: StructField, wanted: DataType) -> tuple[Column, Column | None]:
    """A column cast to the wanted type, and the condition that a value does not fit; a plain row needs no cast."""
    value, bad = cast(F.col(quoted(own.name)), own.dataType, wanted)
    if not group.plain:
        return value, bad
    plain = F.col(PLAIN)
    unfit = plain.isNull() & bad if bad is not None else None
    return F.when(plain.isNotNull(), plain[own.name]).otherwise(value), unfit


def _row_as_text(source: FilesSource, group: Group) -> Column:
    """The line of a row; for a format without lines its fields as JSON."""
    if FORMATS[source.format].parsed:
        return F.col(bad_rows.LINE)
    row = F.struct(*[F.col(quoted(field.name)) for field in group.own.fields])
    return F.to_json(row, {"ignoreNullFields": "false", **JSON_TIMES})


def _metadata(source: FilesSource, group: Group, reading: Reading) -> list[Column]:
    """The columns of `.with_metadata`."""
    if not source.metadata:
        return []
    values = {
        "_file": bad_rows.uri(),
        "_modified": bad_rows.modified(),
        "_arrived": _arrived(group, reading.planned or {}),
    }
    return [values[what].alias(name) for name, what in source.metadata]


def _arrived(group: Group, planned: Mapping[str, int]) -> Column:
    """When the batch of each row's file was planned; null if no batch has the file."""
    times: dict[int | None, list[str]] = {}
    for file in group.files:
        times.setdefault(planned.get(file.path), []).append(as_uri(file.path))
    arrived = F.lit(None).cast("timestamp")
    for millis, uris in times.items():
        time = F.expr(f"timestamp_millis({millis})") if millis else F.lit(None).cast("timestamp")
        arrived = time if len(times) == 1 else F.when(bad_rows.uri().isin(uris), time).otherwise(arrived)
    return arrived


def _verdict(doubtful: list[tuple[str, Column]], text: Column) -> tuple[Column, Column]:
    """The text of a bad row, and the reason; nulls for a good row."""
    null = F.lit(None).cast("string")
    if not doubtful:
        return null, null
    reasons = [F.when(bad, F.lit(why)) for why, bad in doubtful]
    return F.when(any_of([bad for _, bad in doubtful]), text), F.concat_ws(", ", *reasons)


def _rescued(own: StructType, reading: Reading) -> Column:
    """The undeclared fields as JSON; null if a row has none."""
    undeclared = leftovers([(field, F.col(quoted(field.name))) for field in own.fields], reading.columns)
    if undeclared is None:
        return F.lit(None).cast("string")
    fields, has_fields = undeclared
    return F.when(has_fields, F.to_json(fields, JSON_TIMES))


def _reject_bad_files(context: SourceContext, source: FilesSource, bad: Sequence[FileColumns]) -> None:
    """Adds the files that cannot be read to the rejected input, for the quarantine."""
    context.rejected_input.unread = {file.file: file.cause for file in bad}
    if not bad:
        return
    step = f"{source.label()}.on_bad_file"
    values = [(file.file.path, file.file.size, file.file.modified, file.cause, step) for file in bad]
    columns = "file string, size bigint, modified bigint, reason string, step string"
    rows = context.spark.createDataFrame(values, columns)
    payload = F.to_json(F.struct("file", "size", "modified")).alias("payload")
    context.rejected_input.rejected.append(rows.select(payload, "reason", "step"))
