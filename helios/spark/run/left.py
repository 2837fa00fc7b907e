"""What a run that has read its sources to their end leaves for a later one, in words."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from helios.spark.run.job import Job, StreamingQuery
from helios.spark.sources.file_columns import cause_of

GROUPS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
"""Spark's operators whose state is what an append has not emitted yet, as `state-metadata` names them."""


def left(job: Job, query: StreamingQuery) -> list[str]:
    """What the sources and the state of a pipeline keep for a later run; empty if it is nothing."""
    found = [told for source in job.followed.values() if (told := source.left())]
    return [*found, *_groups(job, query)]


def _groups(job: Job, query: StreamingQuery) -> Iterator[str]:
    """The groups that wait for the watermark, counted in the state: Spark's own count slows each batch, and is off."""
    if not job.stateful or job.plan.output_mode != "append" or not job.checkpoint.batches("commits"):
        return
    try:
        groups = _count(job)
    except (Py4JError, PySparkException) as error:  # the rows have landed
        yield f"how many groups wait for the watermark is not known: {cause_of(error)}"
        return
    if groups:
        mark = query.lastProgress.eventTime.get("watermark") if query.lastProgress is not None else None
        wait, at = "group waits" if groups == 1 else "groups wait", f", which is at {mark}" if mark else ""
        yield f"{groups:,} {wait} for the watermark{at}; later rows move it on"


def _count(job: Job) -> int:
    reader, location = job.spark.read, job.checkpoint.location
    operators = reader.format("state-metadata").load(location).where(f"operatorName IN {GROUPS}")
    found = operators.select("operatorId").distinct().collect()
    states = [job.spark.read.format("statestore").option("operatorId", row.operatorId).load(location) for row in found]
    return sum(state.count() for state in states)
