"""The upsert state of a pipeline for a replay of its quarantine."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.spark.sinks.table import TableSink


class ReplayedUpsertState(UpsertState):
    """The pipeline's upsert state, which a replay reads whole, and extends once the target has it.

    Args:
        checkpoint: The pipeline's checkpoint.
        sink: The table, under the name of the replay.
        last: The pipeline's last finished batch.
    """

    def __init__(self, checkpoint: Checkpoint, sink: TableSink, last: int) -> None:
        name = f"{sink.name.text}@{sink.branch}" if sink.branch else sink.name.text
        self._quarantine, self._last = sink.ledger.checkpoint, last
        has_replay = partial(sink.context.has_replay, sink.name)
        super().__init__(checkpoint, name, sink.context.plan.write.mode.tombstones, has_replay)

    @override
    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        return super().load(spark, self._last + 1, keys)

    @override
    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        self._write(rows, f"replayed/{self._quarantine}-{batch}", keys)
