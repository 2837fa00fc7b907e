"""The notes of a replay in the checkpoint folder, so that another process can resume it.

<checkpoint>/helios/replay/
  taken/              the rows that the replay removes from the quarantine
  rejected/           the taken rows that now fail in another step, and are quarantined again
  state.json          the state of the replay (see `State`)
  helios/tables.json  the tables that rows were routed to
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from helios.spark.checkpoint.files import Checkpoint
from helios.spark.sinks.quarantine import COLUMNS, NAMES
from helios.table.positions import Batch, Span


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a started replay.

    Attributes:
        pipeline: The name under which the replay commits, `<pipeline>.replay`.
        position: The replay's source position, which names the snapshot of the quarantine that is read.
        steps: The fingerprint of the pipeline's steps.
        stayed: The number of rows that fail in the same step again, and stay in the quarantine.
    """

    pipeline: str
    number: int
    position: Mapping[str, Any]
    steps: str
    stayed: int

    @property
    def batch(self) -> Batch:
        spans = tuple(Span(entry["source"], None, None, entry) for entry in self.position["sources"])
        return Batch(self.number, spans, maybe_written=True)


class Notes:
    """Reads and writes the notes of a replay."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self.checkpoint = Checkpoint(spark, f"{checkpoint.location}/helios/replay")
        self._spark = spark
        self._files = self.checkpoint.files

    @property
    def started(self) -> bool:
        """True if a replay has begun and is not finished."""
        return self._files.read("state.json") is not None

    def state(self) -> State | None:
        text = self._files.read("state.json")
        return State(**json.loads(text)) if text else None

    def begin(self, state: State) -> None:
        self._files.write("state.json", json.dumps(asdict(state)))

    def store_taken(self, rows: DataFrame) -> None:
        self._write("taken", rows.select(*NAMES))

    def taken(self) -> DataFrame:
        return self._read("taken", COLUMNS)

    def store_rejected(self, rows: DataFrame) -> None:
        self._write("rejected", rows)

    def rejected(self) -> DataFrame:
        return self._read("rejected", "payload string, reason string, step string")

    def clear(self) -> None:
        for name in ("state.json", "rejected", "taken"):
            self._files.delete(name)

    def _write(self, name: str, rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(f"{self._files.root}/{name}")

    def _read(self, name: str, columns: str) -> DataFrame:
        return self._spark.read.schema(columns).parquet(f"{self._files.root}/{name}")
