"""Reads rows in memory, for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import PySparkTypeError, PySparkValueError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.errors import InputError, near_miss
from helios.model.columns import POSITION
from helios.sources.common.spark.spans import SpanSource
from helios.sources.memory.declare import MemorySource
from helios.table.positions import Span


class MemoryReader(SpanSource):
    """The reader of rows in memory, which are read once."""

    @property
    def _source(self) -> MemorySource:
        assert isinstance(self.read_plan.source, MemorySource)
        return self.read_plan.source

    def _rows(self) -> Sequence[tuple[object, ...]]:
        """The rows, each with its values in the order of the declared columns instead of the mappings' keys.

        Raises:
            InputError: The rows have a key that the declared schema lacks.
        """
        source = self._source
        if source.declared_schema is None or not source.columns:
            return source.rows
        declared = StructType.fromDDL(source.declared_schema)
        names = declared.names if isinstance(declared, StructType) else []
        unknown = [name for name in source.columns if name.lower() not in {name.lower() for name in names}]
        if unknown:
            raise InputError(
                f"the rows of Memory.source have the key {unknown[0]!r}, and schema= does not. "
                f"{near_miss(unknown[0], names)}",
                where=source.origin,
            )
        # If mappings spell a key differently, each spelling has its own place in the rows.
        places_by_name = [[i for i, key in enumerate(source.columns) if key.lower() == name.lower()] for name in names]
        return [
            tuple(next((row[i] for i in places if row[i] is not None), None) for places in places_by_name)
            for row in source.rows
        ]

    @override
    def current(self) -> Span:
        source = self._source
        digest = hashlib.sha256(repr((source.columns, source.rows)).encode()).hexdigest()[:32]
        name = source.ledger_name
        return Span(name, None, {"digest": digest}, {"source": name, "digest": digest})

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame:
        schema: Any = self._source.declared_schema or list(self._source.columns)
        try:
            df = spark.createDataFrame([_in_utc(row) for row in self._rows()], schema)
        except (PySparkTypeError, PySparkValueError) as error:
            raise InputError(
                f"the rows of Memory.source do not fit its columns: {error}",
                where=self._source.origin,
                fix='give values of the declared types, or declare text and cast it: `>> cast(at="timestamp")`.',
            ) from error
        # Spark distributes the rows of a list to its tasks in order, so the ids follow that order.
        return df.withColumn(POSITION, F.monotonically_increasing_id()) if positioned else df


def _in_utc(value: object) -> object:
    """A value in which times without a zone, at any depth, are in UTC, since PySpark would use the machine's zone."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if isinstance(value, Row):
        if not hasattr(value, "__fields__"):  # Row(1, 2)
            return Row(*map(_in_utc, value))
        return Row(**{name: _in_utc(field) for name, field in value.asDict().items()})
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(map(_in_utc, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_in_utc, value))
    if isinstance(value, dict):
        return {_in_utc(key): _in_utc(item) for key, item in value.items()}
    return value
