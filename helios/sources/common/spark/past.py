"""The earlier states of sources that are read once."""

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
    """The earlier states of a source.

    Attributes:
        commits: Looks up its commit times.
        rows: The rows of a snapshot.
    """

    commits: Callable[[], CommitTimes]
    rows: Callable[[int], DataFrame]


def past_of(spark: SparkSession, source: Source, pin: int | None) -> Past | None:
    """The past of a source up to its pin; None if it keeps no history."""
    if not isinstance(source, KeepsHistory):
        return None
    history: KeepsHistory = source

    def rows(snapshot: int) -> DataFrame:
        found = source.read(spark, source.at_pin(snapshot))
        assert found is not None  # a state has columns, if no rows
        return found

    return Past(lambda: history.commits(pin), rows)


def current_past(context: SourceContext, index: int) -> Past | None:
    """The past of a source of the plan, up to now."""
    source = open_source(context, index)
    return past_of(context.spark, source, source.pin()) if isinstance(source, KeepsHistory) else None


def table_commits(table: JavaTable, name: str, pin: int | None) -> CommitTimes:
    """The commit times of a table up to a snapshot; in one look, as a history may have thousands of entries."""
    metadata = classes().org.apache.iceberg.TableMetadataParser.toJson(table.operations().current())
    return commit_times(json.loads(metadata), name, pin)
