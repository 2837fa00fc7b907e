"""Prepares the files of a batch for the columnar engine, if it can read them exactly as Spark does."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from helios.native.plain import parses_type
from helios.native.program import NotNative
from helios.native.reader import widens
from helios.native.work import LinesFormat
from helios.sources.common.spark.types import by_name
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.csv_lines import separator_of
from helios.sources.files.spark.reading import Group, Reading
from helios.spark.native.inputs import FolderFiles


def folder_files(source: FilesSource, reading: Reading) -> FolderFiles:
    """The files of a reading for the columnar engine. Their columns may need type promotion, but no other cast.

    Raises:
        NotNative: A file cannot be read, the folders have a column, a value may not fit, or no line can be plain.
    """
    if reading.bad:
        raise NotNative("a file cannot be read")
    if reading.partition_columns.fields:
        raise NotNative(f"the folders have the column {reading.partition_columns.fields[0].name}")
    groups = [
        (
            [(file.path, file.size) for file in group.files],
            {field.name: _own_column(group, field) for field in reading.columns.fields},
        )
        for group in reading.groups
    ]
    texts = tuple(_text_format(source, group, group.typed) for group in reading.groups if group.typed is not None)
    return FolderFiles(reading.columns, groups, texts)


def _own_column(group: Group, wanted: StructField) -> tuple[str, str] | None:
    """The name and the type that a wanted column has in the files of a group; None if they lack the column."""
    file_field = by_name(group.typed or group.columns).get(wanted.name.lower())
    if file_field is None:
        return None
    kind = file_field.dataType.simpleString()
    if file_field.name in group.nanos or not widens(kind, wanted.dataType.simpleString()):
        raise NotNative(
            f"a file has the column {file_field.name} as {kind}, and not as {wanted.dataType.simpleString()}"
        )
    return file_field.name, kind


def _text_format(source: FilesSource, group: Group, typed: StructType) -> LinesFormat:
    """The format of the lines of a group of files."""
    if not group.fast:
        raise NotNative("with these reader options no line is plain")
    columns = tuple((field.name, field.dataType.simpleString()) for field in typed.fields)
    unsupported = next((f"{name} {kind}" for name, kind in columns if not parses_type(kind)), None)
    if unsupported is not None:
        raise NotNative(f"only Spark reads lines with a column {unsupported}")
    return LinesFormat(
        source.format, columns, separator_of(source), tuple(typed.names) if source.flag("header") else ()
    )
