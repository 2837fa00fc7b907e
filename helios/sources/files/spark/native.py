"""Files of a folder for the columnar engine, if none of their rows can be bad."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from helios.native.plain import takes
from helios.native.program import NotNative
from helios.native.reader import widens
from helios.native.work import Text
from helios.sources.common.spark.types import by_name
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.csv_lines import separator_of
from helios.sources.files.spark.reading import Group, Reading
from helios.spark.native.inputs import FolderFiles


def as_they_are(source: FilesSource, reading: Reading) -> FolderFiles:
    """Files whose columns need only type promotion, or whose lines may be plain.

    Raises:
        NotNative: A folder is a column, a file cannot be read, or a value may not fit.
    """
    if reading.bad:
        raise NotNative("a file cannot be read")
    if reading.keys.fields:
        raise NotNative(f"the folders have the column {reading.keys.fields[0].name}")
    groups = [
        ([(file.path, file.size) for file in group.files], {f.name: _own(group, f) for f in reading.columns.fields})
        for group in reading.groups
    ]
    texts = tuple(_text(source, group, group.typed) for group in reading.groups if group.typed is not None)
    return FolderFiles(reading.columns, groups, texts)


def _own(group: Group, wanted: StructField) -> tuple[str, str] | None:
    own = by_name(group.typed or group.own).get(wanted.name.lower())
    if own is None:
        return None
    kind = own.dataType.simpleString()
    if own.name in group.nanos or not widens(kind, wanted.dataType.simpleString()):
        raise NotNative(f"a file has the column {own.name} as {kind}, and not as {wanted.dataType.simpleString()}")
    return own.name, kind


def _text(source: FilesSource, group: Group, typed: StructType) -> Text:
    """The format of the lines of a group of files."""
    if not group.plain:
        raise NotNative("by its options no line is plain")
    columns = tuple((field.name, field.dataType.simpleString()) for field in typed.fields)
    strange = next((f"{name} {kind}" for name, kind in columns if not takes(kind)), None)
    if strange is not None:
        raise NotNative(f"lines with a column {strange} are Spark's")
    return Text(source.format, columns, separator_of(source), tuple(typed.names) if source.flag("header") else ())
