"""Runs several pipelines in one session, each when the tables that it reads are ready, until all end or are stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyspark.sql import SparkSession

from helios.plan.nodes import Plan
from helios.spark.run.events import Event
from helios.spark.run.run import PipelineRun


class Runner:
    """Runs pipelines together.

    A reader is a pipeline that reads the target of another one, its writer. A reader that follows the target starts
    when the writer runs; with `once`, when the writer has ended. A reader that reads once starts when the writer has
    ended. If the writer never ends, the reader waits for one batch, unless the table existed before.

    If a pipeline fails, the others continue, unless `fail_fast`. `declared_names` has the names of all pipelines of the
    script.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        spark: SparkSession,
        *,
        once: bool = False,
        new_checkpoint: bool = False,
        full_refresh: bool = False,
        again: bool = False,
        fail_fast: bool = False,
        beside: Collection[str] = (),
        declared_names: Collection[str] = (),
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.spark = spark
        self.once = once
        self.fail_fast = fail_fast
        options = {"once": once, "new_checkpoint": new_checkpoint, "full_refresh": full_refresh, "again": again}
        declared = {**dict.fromkeys(declared_names), **{plan.pipeline: plan for plan in plans}}
        self.runs = [PipelineRun(plan, spark, emit=emit, beside=beside, siblings=declared, **options) for plan in plans]
        self._waiting = list(self.runs)
        self._stopping = False

    def stop(self) -> None:
        """Requests the end of every run after its current batch; waiting runs are not started."""
        self._stopping = True  # a plain flag: this is called from a signal handler
        for run in self.runs:
            run.stop()

    def run(self) -> bool:
        """Runs until all have ended; returns True if none failed."""
        while self._waiting or any(run.active for run in self.runs):
            if self._stopping:
                self._waiting.clear()
            for run in [r for r in self._waiting if self._ready(r)]:
                self._waiting.remove(run)
                run.start()
            if self.fail_fast and any(run.error for run in self.runs):
                self.stop()
            self._wait(0.1)
        return not any(run.error for run in self.runs)

    def _wait(self, seconds: float) -> None:
        """Waits for the end of a run, or until the time is over."""
        active = next((run for run in self.runs if run.active), None)
        if active is None:
            time.sleep(seconds)
        else:
            active.wait(seconds)

    def status(self) -> list[dict[str, Any]]:
        return [run.status() for run in self.runs]

    def _ready(self, run: PipelineRun) -> bool:
        return not self._blockers(run) or self._circular(run)

    def _blockers(self, run: PipelineRun) -> list[PipelineRun]:
        """The writers of a pipeline's sources that keep the pipeline from starting."""
        source_tables = {read.name for read in run.plan.reads if read.table is not None}
        writers = [r for r in self.runs if r is not run and r.plan.write.table.text in source_tables]
        return [writer for writer in writers if not self._table_ready(writer, run)]

    def _table_ready(self, writer: PipelineRun, reader: PipelineRun) -> bool:
        """True if a reader may start: its writer has ended, or runs. A full refresh has then emptied the table already.

        A reader that reads once waits for more: for the complete table, or for one batch of a writer without end.
        """
        if self._ended(writer):
            return True
        if reader.plan.streaming and not self.once:
            return writer.state == "running"
        endless = writer.plan.streaming and not self.once
        return endless and writer.state == "running" and (writer.batches > 0 or bool(writer.plan.write.exists))

    def _ended(self, run: PipelineRun) -> bool:
        return run not in self._waiting and not run.active

    def _circular(self, run: PipelineRun) -> bool:
        """True only for the first of several pipelines that wait for each other."""
        circle = self._waits_for(run)
        return all(r in self._waiting and run in self._waits_for(r) for r in circle) and run is next(
            (r for r in self._waiting if r in circle), None
        )

    def _waits_for(self, run: PipelineRun) -> list[PipelineRun]:
        """The pipelines for which a pipeline waits, directly or through others."""
        found: list[PipelineRun] = []
        pending = self._blockers(run)
        while pending:
            blocker = pending.pop()
            if blocker not in found:
                found.append(blocker)
                pending += self._blockers(blocker) if blocker in self._waiting else []
        return found
