"""Parquet files of a folder as the columnar engine reads them, where no row of theirs can be a bad one."""

from __future__ import annotations

from pyspark.sql.types import StructField

from helios.native.program import NotNative
from helios.native.reader import widens
from helios.spark.native.inputs import FolderFiles
from helios.spark.sources.file_reading import Group, Reading
from helios.spark.sources.file_types import by_name


def as_they_are(reading: Reading) -> FolderFiles:
    """Files whose columns become those of the reading by promotion alone.

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
    return FolderFiles(reading.columns, groups)


def _own(group: Group, wanted: StructField) -> tuple[str, str] | None:
    own = by_name(group.own).get(wanted.name.lower())
    if own is None:
        return None
    kind = own.dataType.simpleString()
    if own.name in group.nanos or not widens(kind, wanted.dataType.simpleString()):
        raise NotNative(f"a file has the column {own.name} as {kind}, and not as {wanted.dataType.simpleString()}")
    return own.name, kind
