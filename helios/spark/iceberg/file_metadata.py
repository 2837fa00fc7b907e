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
"""What the snapshots of Helios have in their summaries."""
CODECS, THREE_LEVELS = "with zstd, snappy or gzip", "with lists of three levels"
"""How a file is written that Spark can read."""
FEW = 512
"""Files whose footers are asked for at once."""

_MANIFESTS: dict[tuple[str, str, tuple[int, ...]], JavaManifestReporter] = {}
"""Who reads the manifests of each target, by session, table and required columns, and knows those that are read."""


class Leaf(NamedTuple):
    """A column in the footer of a file.

    Attributes:
        id: Its field id.
        physical: Its type.
        annotation: Its logical type.
        optional: Whether it may have nulls.
        nulls: Their number; None where they are not counted.
        dictionary: Whether it has one.
        unread: What keeps Spark from reading it: "levels" for a list of two, or a codec that is not there; else empty.
    """

    id: int
    physical: str
    annotation: str
    optional: bool
    nulls: int | None
    dictionary: bool
    unread: str


class Counted(NamedTuple):
    """A file by the table's metadata: its nulls by column, and the columns without a count."""

    location: str
    format: str
    nulls: Sequence[tuple[int, int]]
    unknown: Sequence[int]


class Manifests(NamedTuple):
    """The manifests that were read, and their files that have nulls."""

    read: Sequence[str]
    nulls: Sequence[Counted]


def counts(
    spark: SparkSession, tasks: JavaList[JavaFileScanTask], columns: Sequence[int], every: bool
) -> list[Counted]:
    """Every file, or those that have nulls."""
    found = cast("JavaFileReporter", instance(spark, COUNTS, _ids(columns), every)).call(tasks)
    return [Counted(*one) for one in json.loads(_json(found))]


def manifests(spark: SparkSession, table: JavaTable, columns: Sequence[int], snapshot: JavaSnapshot) -> Manifests:
    """Reads the manifests of a state that this process has not read, unless Helios alone has added to what it knows."""
    key = (str(spark.sparkContext.applicationId), str(table.uuid()), tuple(columns))
    if key not in _MANIFESTS:
        made = instance(spark, MANIFESTS, _ids(columns), STAMP, base=COUNTS)
        _MANIFESTS[key] = cast("JavaManifestReporter", made)
    read, nulls = json.loads(_json(_MANIFESTS[key].state(table, snapshot)))
    return Manifests(read, [Counted(*one) for one in nulls])


def _ids(columns: Iterable[int]) -> JavaList[int]:
    ids: JavaList[int] = classes().java.util.ArrayList()
    for id in columns:
        ids.add(id)
    return ids


def footers(
    spark: SparkSession, table: JavaTable, mapping: str | None, locations: Sequence[str]
) -> Iterator[tuple[str, list[Leaf]]]:
    """The columns of files by their footers."""
    if not locations:
        return
    teller = cast("JavaFooterReporter", instance(spark, FOOTERS, table.io(), mapping))
    for start in range(0, len(locations), FEW):
        part = locations[start : start + FEW]
        asked = classes().java.util.ArrayList()
        for location in part:
            asked.add(location)
        for location, leaves in zip(part, json.loads(_json(teller.call(asked))), strict=True):
            yield location, [Leaf(*leaf) for leaf in leaves]


def _json(found: object) -> str:
    return str(classes().org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(found))


def no_codec(codec: str) -> str:
    """What is told of data that Spark cannot unpack."""
    return f"compressed with {codec}, for which Spark has no codec."
