"""Routed tables as the target of a replay."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from typing_extensions import override

from helios.catalog.names import TableName
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.route import RoutedSink
from helios.spark.sinks.table import TableSink


class ReplayRoutedSink(RoutedSink):
    """The sink of routed tables, in which each table has the upsert state of the pipeline."""

    def __init__(self, context: SinkContext, with_upsert_state: Callable[[TableSink], TableSink]) -> None:
        super().__init__(context)
        self._with_upsert_state = with_upsert_state

    @override
    def _table(self, name: TableName, table: JavaTable | None, rows: DataFrame) -> TableSink:
        return self._with_upsert_state(super()._table(name, table, rows))
