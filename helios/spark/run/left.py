"""The data that a finished run leaves for a later run, in words."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from helios.errors import HeliosError
from helios.spark.jvm.errors import cause_of
from helios.spark.run.job import Job, StreamingQuery

GROUPS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
"""Spark's operators whose state is what an append has not emitted yet, as `state-metadata` names them."""

MOST = 1_000_000
"""So many groups are counted at the most."""


def left(job: Job, query: StreamingQuery) -> list[str]:
    """The data that the sources and the state of a pipeline keep for a later run, in words; empty if there is none."""
    try:
        texts = [text for source in job.followed.values() if (text := source.left())]
        return [*texts, *_groups(job, query)]
    except (Py4JError, PySparkException) as error:  # the rows have landed
        return [f"it is unknown which rows wait for a later run: {cause_of(error)}"]
    except HeliosError as error:
        return [f"it is unknown which rows wait for a later run: {error.what}"]


def _groups(job: Job, query: StreamingQuery) -> Iterator[str]:
    """The groups that wait for the watermark, counted in the state: Spark's own count slows each batch, and is off."""
    if not job.stateful or job.plan.output_mode != "append" or not job.checkpoint.batches("commits"):
        return
    if groups := _count(job):
        mark = query.lastProgress.eventTime.get("watermark") if query.lastProgress is not None else None
        wait, at = "group waits" if groups == 1 else "groups wait", f", which is at {mark}" if mark else ""
        shown = f"{groups:,}" if groups <= MOST else f"more than {MOST:,}"
        yield f"{shown} {wait} for the watermark{at}; later rows move it on"


def _count(job: Job) -> int:
    reader, location = job.spark.read, job.checkpoint.location
    operators = reader.format("state-metadata").load(location).where(f"operatorName IN {GROUPS}")
    found = operators.select("operatorId").distinct().collect()
    states = [job.spark.read.format("statestore").option("operatorId", row.operatorId).load(location) for row in found]
    return sum(state.limit(MOST + 1).count() for state in states)
