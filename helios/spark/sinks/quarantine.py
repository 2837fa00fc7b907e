"""The quarantine: rows that failed an expectation, a key or a route, with payload, reason, position and batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import CheckpointError
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import tables as writing
from helios.spark.iceberg.transaction import Transaction
from helios.spark.sinks.ledger import Ledger, reads
from helios.spark.sinks.options import Commit, Terms
from helios.table.ledger import Record

NAMES = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
COLUMNS = "pipeline string, batch bigint, step string, reason string, position string, payload string, at timestamp"
"""Of a quarantine table: `payload` is the row as JSON, `position` what its batch read, `step` the expectation."""

COEXIST = {f"write.{command}.isolation-level": "snapshot" for command in ("merge", "delete")}
"""Rows are taken out by whose they are: what other pipelines set aside meanwhile is no conflict."""


class Quarantine:
    """The quarantine table of a pipeline, written exactly once per batch as any target is.

    Args:
        plan: The pipeline.
        name: The table.
        spark: The session.
        checkpoint: The pipeline's checkpoint.
        verify: Refuses to go on without the pipeline's lease.
    """

    def __init__(
        self, plan: Plan, name: TableName, spark: SparkSession, checkpoint: Checkpoint, verify: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._name = name
        self._spark = spark
        self._checkpoint = checkpoint
        self._verify = verify
        self._ledger: Ledger | None = None

    @classmethod
    def of(
        cls, plan: Plan, spark: SparkSession, checkpoint: Checkpoint, verify: Callable[[], None]
    ) -> Quarantine | None:
        """The pipeline's quarantine; None when it declares none."""
        return cls(plan, plan.write.quarantine, spark, checkpoint, verify) if plan.write.quarantine else None

    # writing

    def write(self, rejected: Sequence[DataFrame], number: int, position: Mapping[str, Any], *, planned: bool) -> int:
        """Writes the rows that a batch sets aside, once; returns how many were written now.

        Those that other steps have set aside of the same batch make room: the target does not have that batch yet.

        Args:
            rejected: The rows, as `payload`, `reason` and `step`.
            number: The batch's number.
            position: What it read.
            planned: Whether an earlier process may have written them already.
        """
        if not rejected and (not planned or writing.load_table(self._spark, self._name) is None):
            return 0
        ledger = self._open()
        record = ledger.load()
        if not self._plan.streaming:
            same = record is not None and reads(record.position) == reads(position)
            number = record.batch + (0 if same else 1) if record is not None else 0
        if ledger.find(number, position, planned=True) is not None:
            return 0
        nothing = self._spark.createDataFrame([], "payload string, reason string, step string")
        rows = reduce(DataFrame.unionByName, rejected or [nothing]).withColumns(
            {
                "pipeline": F.lit(self._plan.pipeline),
                "batch": F.lit(number).cast("bigint"),
                "position": F.lit(json.dumps(position)),
                "at": F.current_timestamp(),
            }
        )
        rows = rows.select(*NAMES).persist()
        try:
            some = not rows.isEmpty()
            replaced = self._of(number) if record is not None and record.batch == number else None
            if not some and replaced is None:
                return 0

            def write(pending: Transaction) -> None:
                if replaced is not None:
                    pending.sql(f"DELETE FROM target WHERE {replaced}")
                if some:
                    pending.append(rows)

            terms = Terms(before=self._verify, retry=self._plan.write.sink.retrying, properties=COEXIST)
            commit = ledger.commit(rows.sparkSession, write, number, position, terms)
        finally:
            rows.unpersist()
        return commit.rows if commit is not None and some and not commit.again else 0

    def _of(self, number: int | None = None) -> str:
        """The condition that the pipeline's rows meet, of a batch or of all."""
        names = ", ".join(_text(name) for name in (self._plan.pipeline, self._plan.was) if name)
        return f"pipeline IN ({names})" + (f" AND batch = {number}" if number is not None else "")

    # beginning anew

    def empty(self, checkpoint: str) -> None:
        """Deletes all rows of the pipeline, whose batches come again from the first one under a new checkpoint."""
        table = writing.load_table(self._spark, self._name)
        if table is not None:
            self._delete(self._of())
            claim = Record(checkpoint=checkpoint, steps=self._plan.fingerprint)
            Ledger(table, self._plan.pipeline, checkpoint, "").claim(claim, forget=self._plan.was)

    def rewind(self, to: Record | None) -> None:
        """Deletes the rows of the last batch when its target does not have it: it comes again under another number.

        Args:
            to: The target's record of the pipeline.
        """
        table = writing.load_table(self._spark, self._name)
        record = self._remembered(table) if table is not None and self._plan.streaming else None
        if record is None or record.position is None or to is None or record.checkpoint != to.checkpoint:
            return
        if record.batch > to.batch:
            self._delete(f"{self._of(record.batch)} AND position = {_text(json.dumps(record.position))}")

    def _delete(self, condition: str) -> None:
        # Deleting again changes nothing: no record is needed.
        self._spark.sql(f"DELETE FROM {self._name.sql} WHERE {condition}")

    def _remembered(self, table: Any) -> Record | None:
        """The record of the pipeline, or of its old name."""
        names = [name for name in (self._plan.pipeline, self._plan.was) if name]
        found = (Ledger(table, name, "", "").load() for name in names)
        return next((record for record in found if record is not None), None)

    # the table

    def _open(self) -> Ledger:
        if self._ledger is None:
            identity = self._checkpoint.identity()
            assert identity is not None
            claim = Record(checkpoint=identity.id, steps=self._plan.fingerprint)
            table = writing.load_table(self._spark, self._name)
            if table is None:
                key = Ledger(None, self._plan.pipeline, identity.id, "").key
                schema = self._spark.createDataFrame([], COLUMNS).schema
                table = writing.create_table(
                    self._spark, self._name, schema, {"format-version": "2", key: claim.as_json()}
                )
            missing = {"payload", "reason", "position", "batch"} - set(writing.spark_schema(self._spark, table).names)
            if missing:
                raise CheckpointError(
                    f"{self._name.text} is no quarantine table: it lacks {', '.join(sorted(missing))}.",
                    where=self._plan.declared.sink.origin,
                    fix="give .quarantine() a table of its own; it is created.",
                )
            ledger = _BySteps(table, self._plan.pipeline, identity.id, self._plan.fingerprint)
            record = ledger.load()
            if record is None or record.checkpoint != identity.id:
                # A batch pipeline knows identical inputs whatever its checkpoint; batches that follow have its numbers.
                known = self._remembered(table)
                kept = known is not None and (known.checkpoint == identity.id or not self._plan.streaming)
                claim = replace(known, checkpoint=identity.id) if known is not None and kept else claim
                ledger.claim(claim, forget=self._plan.was)
            self._ledger = ledger
        return self._ledger


class _BySteps(Ledger):
    """The record of a quarantine, where a batch is there only as the steps of now have it."""

    def find(self, batch: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        found = super().find(batch, position, planned=planned)
        record = self.load() if found is not None else None
        return None if record is not None and record.batch == batch and record.steps != self.steps else found


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
