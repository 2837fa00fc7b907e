"""The upsert state of a pipeline, as a replay of its quarantine reads and extends it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from helios.spark.checkpoint.files import Checkpoint, HadoopFiles
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.spark.sinks.table import TableSink


class ReplayedUpsertState(UpsertState):
    """The pipeline's own memory of its keys, to which a replay adds as if its rows had come in the last batch.

    Args:
        checkpoint: The pipeline's checkpoint.
        sink: The table.
        last: The last batch that the pipeline has dealt with.
    """

    def __init__(self, checkpoint: Checkpoint, sink: TableSink, last: int) -> None:
        name = f"{sink.name.text}@{sink.branch}" if sink.branch else sink.name.text
        super().__init__(checkpoint, name, sink.context.plan.write.mode.tombstones)
        self._checkpoint = checkpoint
        self._last = last

    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        self._make_room(spark, keys)
        return super().load(spark, self._last + 1, keys)

    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        super().save(rows, self._last, keys)

    def _make_room(self, spark: SparkSession, keys: tuple[str, ...]) -> None:
        """Frees the place of the last batch: what it remembered is folded, and counts for the one before it."""
        last = self._last
        base = max(self.numbers("base", last + 1), default=None)
        deltas = [n for n in self.numbers("delta", last + 1) if base is None or n > base]
        if deltas[-1:] == [last]:
            self.fold(spark, base, deltas, keys)
            base = last
        if base == last:
            self.files.delete(f"{self.folder}/base/{last - 1}")
            from_, to = (HadoopFiles(spark, self.path(f"base/{n}")) for n in (last, last - 1))
            from_.move(to)
