"""The upsert state of a pipeline for a replay of its quarantine."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.small_files import small_files
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.spark.sinks.table import TableSink


class ReplayedUpsertState(UpsertState):
    """The pipeline's upsert state, which a replay extends as if its rows were part of the last batch.

    Args:
        checkpoint: The pipeline's checkpoint.
        sink: The table.
        last: The pipeline's last finished batch.
    """

    def __init__(self, checkpoint: Checkpoint, sink: TableSink, last: int) -> None:
        name = f"{sink.name.text}@{sink.branch}" if sink.branch else sink.name.text
        super().__init__(checkpoint, name, sink.context.plan.write.mode.tombstones)
        self._last = last

    @override
    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        self._free_last_delta(spark, keys)
        return super().load(spark, self._last + 1, keys)

    @override
    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        super().save(rows, self._last, keys)

    def _free_last_delta(self, spark: SparkSession, keys: tuple[str, ...]) -> None:
        """Folds the delta of the last batch into the base before it, so that `save` can write a new one."""
        last = self._last
        base = max(self.numbers("base", last + 1), default=None)
        deltas = [n for n in self.numbers("delta", last + 1) if base is None or n > base]
        if deltas[-1:] == [last]:
            self.fold(spark, base, deltas, keys)
            base = last
        if base == last:
            self.files.delete(f"{self.folder}/base/{last - 1}")
            from_, to = (small_files(spark, self.path(f"base/{n}")) for n in (last, last - 1))
            from_.move(to)
