"""How long Spark says that the batches of streams took."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming import StreamingQueryListener


class Batches(StreamingQueryListener):
    """Adds up how long Spark says that the batches of streams took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def onQueryProgress(self, event: Any) -> None:
        self.seconds += event.progress.durationMs["triggerExecution"] / 1000

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass
