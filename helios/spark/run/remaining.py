"""Describes the data that a run has not processed when it ends, and leaves for a later run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from helios.errors import HeliosError
from helios.model.values import counted
from helios.spark.jvm.errors import innermost_message
from helios.spark.run.job import Job, StreamingQuery
from helios.table.positions import Lag

GROUP_OPERATORS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
"""Spark's operators that keep groups until append mode emits them, as `state-metadata` names them."""

MAX_COUNTED = 1_000_000
"""Groups are counted only up to this number, because counting reads the state."""


def remaining_data(job: Job, query: StreamingQuery) -> list[str]:
    """Texts for the data that a pipeline's sources and its state keep for a later run; empty if there is none."""
    try:
        texts = [text for source in job.followed.values() if (text := source.unread_data())]
        return [*texts, *_waiting_groups(job, query)]
    except (Py4JError, PySparkException) as error:  # all rows are committed: the run does not fail
        return [f"it is unknown which rows wait for a later run: {innermost_message(error)}"]
    except HeliosError as error:
        return [f"it is unknown which rows wait for a later run: {error.what}"]


def unread_data(lags: Iterable[Lag]) -> list[str]:
    """Texts for the data that a stopped run has not read from its sources, as last measured.

    Examples:
        >>> unread_data([Lag(snapshots=2, seconds=3.0), Lag(snapshots=0, seconds=0.0, files=1)])
        ['2 snapshots and 1 file of its sources are not read yet']
        >>> unread_data([Lag(snapshots=0, seconds=0.0)])
        []
    """
    known = list(lags)
    amounts = {
        "record": sum(lag.records or 0 for lag in known),
        "snapshot": sum(lag.snapshots for lag in known),
        "file": sum(lag.files or 0 for lag in known),
    }
    texts = [counted(number, unit) for unit, number in amounts.items() if number]
    verb = "is" if sum(amounts.values()) == 1 else "are"
    return [f"{' and '.join(texts)} of its sources {verb} not read yet"] if texts else []


def known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum of the known counts; None if no count is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _waiting_groups(job: Job, query: StreamingQuery) -> Iterator[str]:
    """A text for the groups that wait for the watermark, counted in the state.

    Spark's own count of these groups is switched off, because it slows batches down.
    """
    if not job.stateful or job.plan.output_mode != "append" or not job.checkpoint.batches("commits"):
        return
    groups = _count_groups(job)
    if groups:
        watermark = query.lastProgress.eventTime.get("watermark") if query.lastProgress is not None else None
        number = f"{groups:,}" if groups <= MAX_COUNTED else f"more than {MAX_COUNTED:,}"
        wait = "group waits" if groups == 1 else "groups wait"
        at = f", which is at {watermark}" if watermark else ""
        yield f"{number} {wait} for the watermark{at}; later rows move it on"


def _count_groups(job: Job) -> int:
    reader, location = job.spark.read, job.checkpoint.location
    operators = reader.format("state-metadata").load(location).where(f"operatorName IN {GROUP_OPERATORS}")
    ids = [row.operatorId for row in operators.select("operatorId").distinct().collect()]
    states = [job.spark.read.format("statestore").option("operatorId", id).load(location) for id in ids]
    return sum(state.limit(MAX_COUNTED + 1).count() for state in states)
