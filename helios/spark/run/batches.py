"""Runs batches: `run_batch` runs one, and the bounded, incremental and stateful schedulers run those of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import reduce

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.plan.nodes import ReadPath
from helios.sources.common.spark.micro_batch import MicroBatchStream
from helios.sources.common.spark.protocol import DamagedFile
from helios.spark.iceberg.failures import engine_failure, is_outage, source_failure
from helios.spark.iceberg.scan_metrics import collect_scan_metrics
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.callbacks import callback_scope
from helios.spark.jvm.errors import unreadable_file
from helios.spark.run.job import Job, StreamingQuery
from helios.spark.run.late import LateRows, late_rows, late_watermark
from helios.spark.run.other_writers import refuse_out_of_step
from helios.spark.run.remaining import remaining_data
from helios.spark.run.replaced_columns import refuse_replaced_columns
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Found, Partial, Staged
from helios.table.positions import Batch


def run_batch(job: Job, batch: Batch, emitted: DataFrame | None = None) -> Commit | None:
    """Reads, stages and commits a batch exactly once: a batch that the target already has is not written again.

    Args:
        emitted: The DataFrame that Spark's stream emits for the batch; None for a pipeline that reads once.

    Returns:
        The commit; None if the batch changes nothing.

    Raises:
        HeliosError: The batch cannot be read, staged or committed; the message says how much of it is in the target.
    """
    job.lease.verify()
    outcome = job.sink.find(batch)
    if isinstance(outcome, Found):
        if job.stateful and emitted is not None:
            # The rows are committed already, but Spark must run the batch to rebuild its state.
            emitted.write.format("noop").mode("overwrite").save()
        return outcome.commit
    batch = job.pin(batch, partly_written=isinstance(outcome, Partial))
    while True:
        try:
            rows = job.rows(batch, emitted)
            if rows is None:
                return None
            refuse_replaced_columns(job, batch, rows.schema)
            with job.sink.stage(batch, rows) as staged:
                return job.sink.commit(_with_confirmation(job, staged))
        except Exception as error:
            if not _skip_unreadable_file(job, batch, error):
                raise


def _skip_unreadable_file(job: Job, batch: Batch, error: Exception) -> bool:
    """Leaves out the unreadable file that an error names; returns True if the batch can then run again.

    So far, only rejected rows of the batch may be written. They are replaced when the batch runs again.
    """
    path = unreadable_file(error)
    if path is None:
        return False
    if is_outage(error):
        job.run.commit_postponed()
        return False
    is_left_out = not job.stateful and job.set_aside(path)
    if not is_left_out or not isinstance(job.sink.find(replace(batch, maybe_written=True)), Absent):
        job.run.commit_failed()
        return False
    job.sink.reopen(batch)
    return True


def _with_confirmation(job: Job, staged: Staged) -> Staged:
    """The batch with a check by its sources, after the rows are read and before they are committed."""
    if job.late is not None:
        staged = job.late.counted(staged)
    write = staged.write
    if write is None:  # the rows of a routed batch were read when they were separated by table
        job.confirm(staged.batch)
        return staged

    def confirmed(transaction: Transaction) -> None:
        write(transaction)
        job.confirm(staged.batch)

    return replace(staged, write=confirmed)


def execute(job: Job, batch: Batch, emitted: DataFrame | None = None) -> Commit | None:
    """Runs a batch of a run: handles stop requests, collects scan metrics, and maintains the target afterwards."""

    def work() -> Commit | None:
        commit = run_batch(job, batch, emitted)
        if job.late is not None:
            job.run.late(job.late.count())
        return commit

    with callback_scope():
        with scan_task_scope(), collect_scan_metrics(job.tables) as metrics:
            commit = job.run.batch(batch.number, work)
            for source in job.followed.values():  # the scans of Spark's stream, in another thread
                metrics.add(source.scanned())
        job.run.scanned(metrics)
        if commit is not None:
            for done in job.sink.maintain():
                job.run.maintained(done)
        return commit


def run_bounded(job: Job, df: DataFrame) -> None:
    """Runs one batch over all sources as they are now."""
    spans = tuple(source.current() for source in job.sources.values())
    warning = job.repeat.begin(Batch(0, spans).sources)
    if warning is not None:
        job.run.noted(warning)
    # `maybe_written`, as an earlier process may have written the batch.
    batch = Batch(job.sink.number(spans), spans, maybe_written=True)
    refuse_out_of_step(job, batch)
    execute(job, batch)
    if job.repeat.requested:
        job.repeat.finish()


def run_incremental(job: Job, df: DataFrame) -> None:
    """Runs the batches of a stateless pipeline: Spark's streams carry only offsets, and each batch reads its spans."""
    job.begin()
    replan_lost(job)
    ticks = [MicroBatchStream(source).df().select(F.lit(1).alias("tick")) for source in job.followed.values()]
    _follow(job, reduce(DataFrame.union, ticks))


def run_stateful(job: Job, df: DataFrame) -> None:
    """Runs a stateful pipeline as one Spark stream, and writes the rows that Spark emits for each batch."""
    job.begin()
    replan_lost(job)
    _follow(job, df)


def replan_lost(job: Job) -> None:
    """Plans an uncommitted batch again if its snapshots have expired, or its files are gone or changed."""
    number = _uncommitted(job)
    if number is None:
        return
    batch = replace(job.batch(number), maybe_written=True)
    spans = zip(job.followed.values(), batch.spans, strict=True)
    lost = [(source, span) for source, span in spans if source.lost(span)]
    if lost and isinstance(job.sink.find(batch), Absent):
        for source, span in lost:
            source.give_up(span)
        job.checkpoint.forget(number)


def _uncommitted(job: Job) -> int | None:
    """The number of the batch that Spark has planned and not committed; None if there is none."""
    planned, committed = job.checkpoint.batches("offsets"), job.checkpoint.batches("commits")
    return planned[-1] if planned and planned[-1] not in committed else None


def _follow(job: Job, df: DataFrame) -> None:
    """Runs a streaming query that executes its batches one after the other; raises the error that stopped it."""
    failure: list[BaseException] = []
    started: Future[StreamingQuery] = Future()

    def read_from_query(read: Callable[[StreamingQuery], int]) -> Callable[[], int]:
        # The first batch may begin before `start` has returned the query.
        return lambda: read(started.result(timeout=60))

    def on_batch(emitted: DataFrame, number: int) -> None:
        try:
            batch = job.batch(number)
            late = LateRows(read_from_query(late_rows), read_from_query(late_watermark)) if job.stateful else None
            execute(replace(job, late=late), batch, emitted)
            job.report_progress(batch)
        except BaseException as error:
            failure.append(error)
            raise

    plan = job.plan
    assert plan.trigger is not None
    writer = (
        df.writeStream.outputMode(plan.output_mode)
        .foreachBatch(on_batch)
        .option("checkpointLocation", job.checkpoint.location)
    )
    writer = (
        writer.trigger(availableNow=True)
        if job.run.once
        else writer.trigger(processingTime=f"{round(plan.trigger.every * 1000)} milliseconds")
    )
    try:
        query = writer.start()
        started.set_result(query)
        job.run.follow(query)
        if job.run.once:
            job.run.data_left(remaining_data(job, query))
    except StreamingQueryException as error:
        # Spark passes on only the text of a Python error, so the errors themselves were kept.
        errors = [*failure, *(source.error for source in job.followed.values() if source.error is not None)]
        _report_failure(job, errors[0] if errors else error)
        if errors:  # an error's own cause names the service that does not answer
            raise errors[0] from (errors[0].__cause__ or error)
        raise engine_failure(error, plan) from error


def _report_failure(job: Job, error: BaseException) -> None:
    """Tells the sources that a planned batch failed because of data that may be repaired before the next run."""
    number = _uncommitted(job)
    if number is None:
        return
    if isinstance(error, (InputError, DamagedFile)) or source_failure(error, job.plan) is not None:
        for source, span in zip(job.followed.values(), job.batch(number).spans, strict=True):
            source.failed(span)


SCHEDULERS: Mapping[ReadPath, Callable[[Job, DataFrame], None]] = {
    ReadPath.BATCH: run_bounded,
    ReadPath.RANGES: run_incremental,
    ReadPath.STATEFUL: run_stateful,
}
