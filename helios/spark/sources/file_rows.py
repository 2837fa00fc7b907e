"""The rows of files: each is read as its own footer or header says, and its columns are brought together by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from helios.files.entry import File
from helios.model.file_formats import FORMATS
from helios.model.files import FilesSource
from helios.spark.jvm.sql import quoted
from helios.spark.sources import bad_rows, partitions
from helios.spark.sources.context import SourceContext
from helios.spark.sources.file_columns import Found
from helios.spark.sources.file_reading import SPARKS_OWN, Group, Reading, reading_of
from helios.spark.sources.file_types import any_of, by_name, cast
from helios.spark.sources.listing import loaded


def schema_of(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The columns of files: those that are declared, or those of all footers and headers, and of partition folders.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    return _shown(source, reading_of(context, source, files).columns)


def read_files(context: SourceContext, source: FilesSource, files: Sequence[File]) -> DataFrame:
    """The rows of files as a batch; bad rows and bad files go to `context.aside`.

    Args:
        context: What the sources of the run share.
        source: The source.
        files: The files; none if a schema is declared, or was inferred before.

    Raises:
        InputError: A file does not have the declared columns, or two files do not fit together.
        RunError: A file cannot be read.
    """
    reading = reading_of(context, source, files)
    _set_aside(context, source, reading.bad)
    if not reading.groups:
        return context.spark.createDataFrame([], _shown(source, reading.columns))
    parts = [_rows(context.spark, source, reading, group) for group in reading.groups]
    df = reduce(DataFrame.unionAll, parts)
    if bad_rows.TEXT not in df.columns:
        return df
    return bad_rows.kept(df, source, context.aside)


def _shown(source: FilesSource, columns: StructType) -> StructType:
    """The columns with that of rescued fields."""
    return StructType([*columns.fields, *([StructField(source.rescued, StringType())] if source.rescued else [])])


def _rows(spark: SparkSession, source: FilesSource, reading: Reading, group: Group) -> DataFrame:
    """The rows of a group with all columns of the reading, and the hidden ones where rows may be bad."""
    parsed = FORMATS[source.format].parsed and source.bad_row != "null"
    own = StructType([*group.own.fields, *([StructField(bad_rows.TEXT, StringType())] if parsed else [])])
    options = {**source.reader_options(), **SPARKS_OWN, "columnNameOfCorruptRecord": bad_rows.TEXT}
    if source.format == "csv":
        options["enforceSchema"] = "true"
    reader = spark.read.format(source.format).options(**options).schema(own)
    df = loaded(spark, reader, group.files)
    columns, doubtful = _columns(group, reading, source)
    file = F.col("_metadata.file_path")
    if source.rescued:
        columns.append(_rescued(group.own, reading).alias(source.rescued))
    if source.bad_row != "null" and (parsed or _doubtful(source, reading)):
        text, why = _verdict(group, doubtful)
        if parsed:
            raw = F.col(quoted(bad_rows.TEXT))
            text, why = F.coalesce(raw, text), F.when(raw.isNotNull(), F.lit("the row does not parse")).otherwise(why)
        columns += [text.alias(bad_rows.TEXT), why.alias(bad_rows.WHY), file.alias(bad_rows.FILE)]
    return df.select(*columns)


def _columns(
    group: Group, reading: Reading, source: FilesSource
) -> tuple[list[Column], list[tuple[str, DataType, Column]]]:
    """The wanted columns of a group's rows, and those that may not fit, each with its type and the condition."""
    theirs, keys = by_name(group.own), by_name(reading.keys)
    columns: list[Column] = []
    doubtful: list[tuple[str, DataType, Column]] = []
    for field in reading.columns.fields:
        own = theirs.get(field.name.lower())
        if field.name.lower() in keys:
            text = partitions.value(field.name)
            value, bad = cast(text, StringType(), field.dataType)
        elif own is None:
            value, bad = F.lit(None).cast(field.dataType), None
        else:
            value, bad = cast(F.col(quoted(own.name)), own.dataType, field.dataType)
        columns.append(value.alias(field.name))
        if bad is not None:
            doubtful.append((field.name, field.dataType, bad))
    return columns, doubtful


def _doubtful(source: FilesSource, reading: Reading) -> bool:
    """Whether a row of any group may not fit."""
    return any(_columns(group, reading, source)[1] for group in reading.groups)


def _verdict(group: Group, doubtful: list[tuple[str, DataType, Column]]) -> tuple[Column, Column]:
    """The text of a row that does not fit, and what is wrong with it; nulls for a good one."""
    nothing = F.lit(None).cast("string")
    if not doubtful:
        return nothing, nothing
    row = F.to_json(F.struct(*[F.col(quoted(field.name)) for field in group.own.fields]), {"ignoreNullFields": "false"})
    reasons = [F.when(bad, F.lit(f"{name} does not fit {kind.simpleString()}")) for name, kind, bad in doubtful]
    return F.when(any_of([bad for _, _, bad in doubtful]), row), F.concat_ws(", ", *reasons)


def _rescued(own: StructType, reading: Reading) -> Column:
    """The fields that are not wanted, as JSON; null where a row has none."""
    wanted = {field.name.lower() for field in reading.columns.fields}
    more = [F.col(quoted(field.name)) for field in own.fields if field.name.lower() not in wanted]
    if not more:
        return F.lit(None).cast("string")
    return F.when(any_of([column.isNotNull() for column in more]), F.to_json(F.struct(*more)))


def _set_aside(context: SourceContext, source: FilesSource, bad: Sequence[Found]) -> None:
    """Notes files that cannot be read for the quarantine."""
    context.aside.unread = tuple(one.file for one in bad)
    if not bad:
        return
    step = f"{source.label()}.on_bad_file"
    noted = [(one.file.path, one.file.size, one.file.modified, one.cause, step) for one in bad]
    rows = context.spark.createDataFrame(noted, "file string, size bigint, modified bigint, reason string, step string")
    payload = F.to_json(F.struct("file", "size", "modified")).alias("payload")
    context.aside.rejected.append(rows.select(payload, "reason", "step"))
