"""One batch: found, or read, staged and committed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from helios.spark.iceberg.scan_metrics import collect_scan_metrics
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.run.job import Job
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Found
from helios.table.positions import Batch


def run_batch(job: Job, batch: Batch, emitted: DataFrame | None = None) -> Commit | None:
    """Brings a batch into the target, once.

    Args:
        job: The pipeline.
        batch: The batch.
        emitted: What Spark's stream gave; None for a pipeline that reads once.

    Returns:
        The commit; None where the batch changes nothing.

    Raises:
        HeliosError: The batch cannot be read, staged or committed; the target holds nothing of it, or what is told.
    """
    job.lease.verify()
    outcome = job.sink.find(batch)
    if isinstance(outcome, Found):
        if job.stateful and emitted is not None:
            # The rows are there already, but Spark's state of this batch is built by running it.
            emitted.write.format("noop").mode("overwrite").save()
        return outcome.commit
    batch = job.pin(batch)
    rows = job.rows(batch, emitted)
    if rows is None:
        return None
    with job.sink.stage(batch, rows) as staged:
        return job.sink.commit(staged)


def execute(job: Job, batch: Batch, emitted: DataFrame | None = None) -> Commit | None:
    """Runs a batch with all around it: stop and locks, the metrics of its scans, maintenance behind it."""
    with scan_task_scope(), collect_scan_metrics(job.tables) as metrics:
        commit = job.run.batch(batch.number, lambda: run_batch(job, batch, emitted))
        for source in job.followed.values():  # what Spark itself read, in a thread of its own
            metrics.add(source.scanned())
    job.run.scanned(metrics)
    if commit is not None:
        for done in job.sink.maintain():
            job.run.maintained(done)
    return commit
