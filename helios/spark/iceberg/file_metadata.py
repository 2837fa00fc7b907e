"""Reads the counts of nulls in a table's manifests, and the footers of its parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from pyspark.sql import SparkSession

from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.files import JavaFileReporter, JavaFileScanTask, JavaFooterReporter, JavaManifestReporter
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList

NULL_COUNTS_JAVA, FOOTERS_JAVA, MANIFEST_NULLS_JAVA = (
    Path(__file__).with_name(f"{name}.java") for name in ("NullCounts", "Footers", "ManifestNulls")
)
STAMP = "helios.pipeline"
"""An entry in the summary of every snapshot that Helios commits."""
CODECS, THREE_LEVELS = "with zstd, snappy or gzip", "with lists of three levels"
"""Parts of the advice in error messages: how to write files that Spark can read."""
FOOTERS_PER_CALL = 512
"""The number of footers that one JVM call reads. The check ends at the first bad file, which saves further calls."""

_REPORTERS: dict[tuple[str, str, tuple[int, ...]], JavaManifestReporter] = {}
"""The Java objects that read the manifests of targets, by application, table and columns. Each object remembers the
manifests and snapshots in which it has found no nulls."""


class Leaf(NamedTuple):
    """A leaf column in the footer of a parquet file.

    Attributes:
        physical: Its physical type.
        annotation: Its logical type; empty for none.
        optional: Whether it may have nulls.
        nulls: The number of its nulls; None if they are not counted.
        dictionary: Whether it has dictionary pages.
        unreadable: The reason why Spark cannot read it: "levels" for a list of two levels, or the name of a codec that
            Spark lacks. Empty if Spark can read it.
    """

    id: int
    physical: str
    annotation: str
    optional: bool
    nulls: int | None
    dictionary: bool
    unreadable: str


class FileNulls(NamedTuple):
    """The nulls of a file, according to the table's metadata.

    Attributes:
        format: Its format, in upper case.
        nulls: The field id and the number of nulls of each column that has nulls.
        unknown: The field ids of the columns without a count.
    """

    location: str
    format: str
    nulls: Sequence[tuple[int, int]]
    unknown: Sequence[int]


class ReadManifests(NamedTuple):
    """The paths of the manifests that a call has read, and the files with nulls that these manifests list."""

    read: Sequence[str]
    with_nulls: Sequence[FileNulls]


def null_counts(
    spark: SparkSession, tasks: JavaList[JavaFileScanTask], columns: Sequence[int], all_files: bool
) -> list[FileNulls]:
    """The nulls in the files of scan tasks. Files without nulls are left out, unless `all_files` is True."""
    reported = cast("JavaFileReporter", instance(spark, NULL_COUNTS_JAVA, _ids(columns), all_files)).call(tasks)
    return [FileNulls(*fields) for fields in json.loads(_json(reported))]


def manifests(spark: SparkSession, table: JavaTable, columns: Sequence[int], snapshot: JavaSnapshot) -> ReadManifests:
    """Reads the manifests of a snapshot, except those in which this process has found no nulls before.

    No manifest is read if all commits since a snapshot that had no nulls are Helios's own, under the current schema.
    """
    key = (str(spark.sparkContext.applicationId), str(table.uuid()), tuple(columns))
    if key not in _REPORTERS:
        reporter = instance(spark, MANIFEST_NULLS_JAVA, _ids(columns), STAMP, base=NULL_COUNTS_JAVA)
        _REPORTERS[key] = cast("JavaManifestReporter", reporter)
    read, nulls = json.loads(_json(_REPORTERS[key].readUnchecked(table, snapshot)))
    return ReadManifests(read, [FileNulls(*fields) for fields in nulls])


def _ids(columns: Iterable[int]) -> JavaList[int]:
    ids: JavaList[int] = classes().java.util.ArrayList()
    for id in columns:
        ids.add(id)
    return ids


def footers(
    spark: SparkSession, table: JavaTable, mapping: str | None, locations: Sequence[str]
) -> Iterator[tuple[str, list[Leaf]]]:
    """Yields the location of each file, and the leaf columns in its footer."""
    if not locations:
        return
    reporter = cast("JavaFooterReporter", instance(spark, FOOTERS_JAVA, table.io(), mapping))
    for start in range(0, len(locations), FOOTERS_PER_CALL):
        chunk = locations[start : start + FOOTERS_PER_CALL]
        paths = classes().java.util.ArrayList()
        for location in chunk:
            paths.add(location)
        for location, leaves in zip(chunk, json.loads(_json(reporter.call(paths))), strict=True):
            yield location, [Leaf(*leaf) for leaf in leaves]


def _json(value: object) -> str:
    return str(classes().org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(value))


def no_codec(codec: str) -> str:
    """The end of a message about a column that Spark cannot decompress."""
    return f"compressed with {codec}, for which Spark has no codec."
