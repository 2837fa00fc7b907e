"""Infers the columns of JSON values once, and keeps them in the checkpoint, so that a restart has the same columns."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from helios.errors import CheckpointError, InputError
from helios.sources.common.spark.context import SourceContext
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark import rows as kafka_rows
from helios.spark.jvm.functions import ddl

FOLDER = "helios/columns"
"""The folder of a checkpoint with the inferred columns. Each source has a file, named by the source's number."""


class InferredColumns:
    """The columns of one source, inferred once; `index` is its number among all sources of the plan."""

    def __init__(self, context: SourceContext, index: int) -> None:
        self._context = context
        self._file = f"{FOLDER}/{index}.json"
        self._columns: StructType | None = None
        self._kept = False

    def of(self, source: KafkaSource, sample: Callable[[], DataFrame]) -> StructType:
        """The columns of values, from the checkpoint or else from the records that `sample` returns.

        Raises:
            CheckpointError: The columns in the checkpoint cannot be read.
            InputError: No record of the sample is a JSON object with fields.
        """
        if self._columns is None:
            self._columns = self._read()
            self._kept = self._columns is not None
        if self._columns is None:
            self._columns = self._infer(source, sample())
        return self._columns

    def keep(self) -> None:
        """Stores the columns in the checkpoint, if the checkpoint already belongs to the pipeline."""
        checkpoint = self._context.checkpoint
        if self._kept or self._columns is None or checkpoint is None or checkpoint.identity() is None:
            return
        checkpoint.files.write(self._file, json.dumps({"v": 1, "columns": self._columns.jsonValue()}))
        self._kept = True

    def _read(self) -> StructType | None:
        """The columns in the checkpoint; None if it has none."""
        checkpoint = self._context.checkpoint
        text = checkpoint.files.read(self._file) if checkpoint is not None else None
        if checkpoint is None or text is None:
            return None
        try:
            return StructType.fromJson(json.loads(text)["columns"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.location}/{self._file}, the inferred columns of a source, cannot be read ({error}).",
                fix="restore the checkpoint from a backup, or declare the columns: value(..., schema=...).",
            ) from error

    def _infer(self, source: KafkaSource, records: DataFrame) -> StructType:
        """Infers the columns from records, and notes them in the log of the run."""
        columns = kafka_rows.inferred(records, source)
        if not columns.fields:
            raise InputError(
                f"{source.label()}: none of the sampled records (up to about {source.values.sample:,}) is a JSON "
                "object with fields from which columns could be inferred.",
                where=source.origin,
                fix='declare the columns: value("json", schema="id bigint, name string").',
            )
        self._context.observer.noted(
            f"{source.label()}: columns inferred from up to about {source.values.sample:,} records: "
            f"{ddl(self._context.spark, columns)}"
        )
        return columns
