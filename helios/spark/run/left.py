"""Describes the data that a finished run leaves for a later run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from helios.errors import HeliosError
from helios.model.values import counted
from helios.spark.jvm.errors import cause_of
from helios.spark.run.job import Job, StreamingQuery
from helios.table.positions import Lag

GROUPS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
"""Spark's operators that keep groups until append mode emits them, by their names in `state-metadata`."""

MAX_COUNTED = 1_000_000
"""Counting stops after this number of groups, as it reads the state."""


def left(job: Job, query: StreamingQuery) -> list[str]:
    """The data that the sources and the state of a pipeline keep for a later run, in words; empty if there is none."""
    try:
        texts = [text for source in job.followed.values() if (text := source.unread_data())]
        return [*texts, *_groups(job, query)]
    except (Py4JError, PySparkException) as error:  # all rows are committed: the run does not fail
        return [f"it is unknown which rows wait for a later run: {cause_of(error)}"]
    except HeliosError as error:
        return [f"it is unknown which rows wait for a later run: {error.what}"]


def unread(lags: Iterable[Lag]) -> list[str]:
    """The data of its sources that a stopped run has not read, as last measured, in words.

    Examples:
        >>> unread([Lag(snapshots=2, seconds=3.0), Lag(snapshots=0, seconds=0.0, files=1)])
        ['2 snapshots and 1 file of its sources are not read yet']
        >>> unread([Lag(snapshots=0, seconds=0.0)])
        []
    """
    known = list(lags)
    amounts = {
        "record": sum(lag.records or 0 for lag in known),
        "snapshot": sum(lag.snapshots for lag in known),
        "file": sum(lag.files or 0 for lag in known),
    }
    texts = [counted(number, what) for what, number in amounts.items() if number]
    verb = "is" if sum(amounts.values()) == 1 else "are"
    return [f"{' and '.join(texts)} of its sources {verb} not read yet"] if texts else []


def known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum of the known counts; None if no count is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _groups(job: Job, query: StreamingQuery) -> Iterator[str]:
    """The groups that wait for the watermark, counted in the state; Spark's own count is off, as it slows batches."""
    if not job.stateful or job.plan.output_mode != "append" or not job.checkpoint.batches("commits"):
        return
    groups = _count(job)
    if groups:
        watermark = query.lastProgress.eventTime.get("watermark") if query.lastProgress is not None else None
        number = f"{groups:,}" if groups <= MAX_COUNTED else f"more than {MAX_COUNTED:,}"
        wait = "group waits" if groups == 1 else "groups wait"
        at = f", which is at {watermark}" if watermark else ""
        yield f"{number} {wait} for the watermark{at}; later rows move it on"


def _count(job: Job) -> int:
    reader, location = job.spark.read, job.checkpoint.location
    operators = reader.format("state-metadata").load(location).where(f"operatorName IN {GROUPS}")
    ids = [row.operatorId for row in operators.select("operatorId").distinct().collect()]
    states = [job.spark.read.format("statestore").option("operatorId", id).load(location) for id in ids]
    return sum(state.limit(MAX_COUNTED + 1).count() for state in states)
