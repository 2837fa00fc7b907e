"""The counts of nulls in the manifests of a table, and the footers of its parquet files."""

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

COUNTS, FOOTERS, MANIFESTS = (
    Path(__file__).with_name(f"{name}.java") for name in ("NullCounts", "Footers", "ManifestNulls")
)
STAMP = "helios.pipeline"
"""An entry in the summary of every snapshot that Helios commits."""
CODECS, THREE_LEVELS = "with zstd, snappy or gzip", "with lists of three levels"
"""How to write files that Spark can read, for messages."""
FOOTERS_PER_CALL = 512
"""Footers that one call reads. The check ends at the first misread file, and saves the remaining calls."""

_REPORTERS: dict[tuple[str, str, tuple[int, ...]], JavaManifestReporter] = {}
"""The Java object that reads a target's manifests, and remembers which it has read; by session, table and columns."""


class Leaf(NamedTuple):
    """A column in the footer of a parquet file.

    Attributes:
        id: Its field id.
        physical: Its physical type.
        annotation: Its logical type; empty for none.
        optional: Whether it may have nulls.
        nulls: The number of its nulls; None if they are not counted.
        dictionary: Whether it has dictionary pages.
        unread: Why Spark cannot read it: "levels" for a list of two levels, or the name of a codec that Spark lacks.
            Empty if Spark can read it.
    """

    id: int
    physical: str
    annotation: str
    optional: bool
    nulls: int | None
    dictionary: bool
    unread: str


class Counted(NamedTuple):
    """The nulls of a file, according to the table's metadata.

    Attributes:
        location: The file.
        format: Its format, in upper case.
        nulls: The columns that have nulls: field id and number of nulls.
        unknown: The field ids of the columns without a count.
    """

    location: str
    format: str
    nulls: Sequence[tuple[int, int]]
    unknown: Sequence[int]


class Manifests(NamedTuple):
    """The paths of the manifests that a call has read, and the files with nulls in these manifests."""

    read: Sequence[str]
    nulls: Sequence[Counted]


def counts(
    spark: SparkSession, tasks: JavaList[JavaFileScanTask], columns: Sequence[int], every: bool
) -> list[Counted]:
    """The nulls of the files of scan tasks. Files without nulls are left out, unless `every` is True."""
    reported = cast("JavaFileReporter", instance(spark, COUNTS, _ids(columns), every)).call(tasks)
    return [Counted(*fields) for fields in json.loads(_json(reported))]


def manifests(spark: SparkSession, table: JavaTable, columns: Sequence[int], snapshot: JavaSnapshot) -> Manifests:
    """Reads the manifests of a snapshot that this process has not read yet.

    No manifest is read if Helios alone has committed since the last snapshot that was read.
    """
    key = (str(spark.sparkContext.applicationId), str(table.uuid()), tuple(columns))
    if key not in _REPORTERS:
        reporter = instance(spark, MANIFESTS, _ids(columns), STAMP, base=COUNTS)
        _REPORTERS[key] = cast("JavaManifestReporter", reporter)
    read, nulls = json.loads(_json(_REPORTERS[key].state(table, snapshot)))
    return Manifests(read, [Counted(*fields) for fields in nulls])


def _ids(columns: Iterable[int]) -> JavaList[int]:
    ids: JavaList[int] = classes().java.util.ArrayList()
    for id in columns:
        ids.add(id)
    return ids


def footers(
    spark: SparkSession, table: JavaTable, mapping: str | None, locations: Sequence[str]
) -> Iterator[tuple[str, list[Leaf]]]:
    """The location of each file, and the columns in its footer."""
    if not locations:
        return
    reporter = cast("JavaFooterReporter", instance(spark, FOOTERS, table.io(), mapping))
    for start in range(0, len(locations), FOOTERS_PER_CALL):
        part = locations[start : start + FOOTERS_PER_CALL]
        paths = classes().java.util.ArrayList()
        for location in part:
            paths.add(location)
        for location, leaves in zip(part, json.loads(_json(reporter.call(paths))), strict=True):
            yield location, [Leaf(*leaf) for leaf in leaves]


def _json(value: object) -> str:
    return str(classes().org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(value))


def no_codec(codec: str) -> str:
    """The end of a message about a column that Spark cannot decompress."""
    return f"compressed with {codec}, for which Spark has no codec."
