"""The upsert state of a pipeline for a replay of its quarantine."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from helios.spark.checkpoint.upsert_state import UpsertState


class ReplayedUpsertState(UpsertState):
    """The pipeline's upsert state, as a replay reads and extends it.

    A replay reads the state after the pipeline's last batch. The keys that the replay adds count once the target has
    the replay's commit.

    Args:
        quarantine: The UUID of the quarantine.
        last: The pipeline's last finished batch.
    """

    def __init__(self, state: UpsertState, quarantine: str, last: int) -> None:
        super().__init__(state.files, state.folder, state._remember_seconds, state._has_replay)
        self._quarantine, self._last = quarantine, last

    @override
    def load(self, spark: SparkSession, batch: int, keys: tuple[str, ...]) -> DataFrame | None:
        return super().load(spark, self._last + 1, keys)

    @override
    def save(self, rows: DataFrame, batch: int, keys: tuple[str, ...]) -> None:
        self._write(rows, f"replayed/{self._quarantine}-{batch}", keys)
