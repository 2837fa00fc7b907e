"""`SpanSource`, the base class of sources that are read by spans."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.errors import CheckpointError, InputError
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.row_stream import RowStream
from helios.spark.checkpoint.files import StartEntry
from helios.spark.iceberg.scan_metrics import ScanMetrics
from helios.spark.jvm.sql import struct_of
from helios.table.lags import FOLDER as LAGS
from helios.table.lags import KeptLag
from helios.table.positions import Lag, Position, Span

LAG_INTERVAL = 5.0
"""The seconds between two writes of the lag into the checkpoint, for `helios status`."""


class SpanSource:
    """Defaults of the `Source` protocol for a source that is read by spans.

    A subclass implements `first`, `latest` and `read`. For a pinned source, it also implements `pin`, `exists` and
    `at_pin`.

    Args:
        context: The context that the sources of the run share.
        index: The source's number in the plan.
    """

    pinned = False

    def __init__(self, context: SourceContext, index: int) -> None:
        self.context = context
        self.index = index
        self.read_plan = context.plan.reads[index]
        self.error: BaseException | None = None
        self.stream_columns: StructType | None = None
        self._start: Position | None = None
        self._lag_written_at = 0.0

    @property
    def declared(self) -> str:
        """The declared start, as text. A later run that declares another start is refused."""
        return self.read_plan.source.label()

    def first(self) -> Position:
        """The position before the first batch. It is determined once, at the first start of the pipeline."""
        raise NotImplementedError

    def begin(self) -> StartEntry:
        self._start = self.first()
        return StartEntry(declared=self.declared, branch=None, uuid=None, place=self._start)

    def resume(self, entry: StartEntry) -> None:
        if entry["declared"] != self.declared:
            raise CheckpointError(
                f"{self.read_plan.name} has been followed from {entry['declared']}; the pipeline now declares "
                f"{self.declared}, but the declared start counts at the first start only.",
                where=self.read_plan.source.origin,
                fix="declare the former start again, refill the target with `helios run --full-refresh`, or give the "
                "pipeline a new name and a new target.",
            )
        self._start = entry["place"]

    def start(self) -> Position:
        assert self._start is not None  # begin() or resume() comes first
        return self._start

    def latest(self, after: Position) -> Position:
        raise NotImplementedError

    def freeze(self) -> None:
        """Does nothing by default: a run with `--once` also reads data that arrives during the run."""

    def span(self, start: Position | None, end: Position | None) -> Span:
        entry = {"source": self.read_plan.name, "branch": None, "uuid": None, "from": self.declared, "place": end}
        return Span(self.read_plan.name, start, end, entry)

    def lost(self, span: Span) -> bool:
        return False

    def failed(self, span: Span) -> None:
        return None

    def give_up(self, span: Span) -> None:
        return None

    def confirm(self, span: Span) -> None:
        return None

    def lag(self, at: Position) -> Lag | None:
        return None

    def keep_lag(self, lag: Lag, *, every: float = LAG_INTERVAL) -> None:
        """Writes a lag into the checkpoint, where `helios status` finds it (`helios.table.lags:lag_last_seen`).

        This is for sources whose lag only a run can compute.

        Args:
            lag: The lag.
            every: The minimum number of seconds between two writes; a call before that writes nothing.
        """
        checkpoint, now = self.context.checkpoint, time.time()
        if checkpoint is not None and now - self._lag_written_at >= every:
            self._lag_written_at = now
            seen = KeptLag(self.read_plan.ledger_name, lag, datetime.fromtimestamp(now, UTC))
            checkpoint.files.write(f"{LAGS}/{self.index}.json", seen.as_json())

    def committed(self, position: Position) -> None:
        return None

    def unread_data(self) -> str:
        return ""

    def current(self) -> Span:
        start = self.first()
        return self.span(start, self.latest(start))

    def pin(self) -> int | None:
        raise NotImplementedError

    def exists(self, pin: int | None) -> bool:
        raise NotImplementedError

    def at_pin(self, pin: int | None) -> Span:
        raise NotImplementedError

    def schema(self) -> StructType:
        """The declared columns. A source without declared columns overrides this method."""
        declared = self.read_plan.source.declared_schema
        if declared is None:
            raise InputError(
                f"{self.read_plan.name} declares no columns, and its reader does not tell them.",
                where=self.read_plan.source.origin,
                fix=f"override schema() in {type(self).__name__}, or set declared_schema in the declared source.",
            )
        return struct_of(declared)

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        raise NotImplementedError

    def size(self, span: Span) -> int | None:
        """The upper bound of the bytes in the files of a span; None if it is unknown, or if the source has no files."""
        return None

    def empty(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self.schema())

    def set_aside(self, file_uri: str) -> bool:
        return False

    def stream(self) -> DataFrame:
        return RowStream(self).df()

    def verify_stream(self) -> None:
        return None

    def scanned(self) -> ScanMetrics:
        return ScanMetrics()
