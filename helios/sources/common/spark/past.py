"""Reads the earlier states of sources that are read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import KeepsHistory, Source, open_source
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.iceberg import JavaTable
from helios.table.commit_times import CommitTimes, commit_times


@dataclass(frozen=True)
class Past:
    """The earlier states of a source: the times of their commits, and the rows of a state by its snapshot id."""

    commits: Callable[[], CommitTimes]
    rows: Callable[[int], DataFrame]


def past_of(spark: SparkSession, source: Source, pin: int | None) -> Past | None:
    """The earlier states of a source up to its pin; None if the source keeps no history."""
    if not isinstance(source, KeepsHistory):
        return None
    history: KeepsHistory = source

    def rows(snapshot: int) -> DataFrame:
        df = source.read(spark, source.at_pin(snapshot))
        assert df is not None  # a state without rows still has columns
        return df

    return Past(lambda: history.commits(pin), rows)


def past_until_now(context: SourceContext, index: int) -> Past | None:
    """The earlier states of a source of the plan, up to now; None if the source keeps no history."""
    source = open_source(context, index)
    return past_of(context.spark, source, source.pin()) if isinstance(source, KeepsHistory) else None


def table_commits(table: JavaTable, name: str, pin: int | None) -> CommitTimes:
    """The commit times of a table up to a snapshot.

    Reads the metadata in one call of the JVM, as the history may have thousands of entries.
    """
    metadata = classes().org.apache.iceberg.TableMetadataParser.toJson(table.operations().current())
    return commit_times(json.loads(metadata), name, pin)
