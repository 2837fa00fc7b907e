"""The quarantine sink: a table of rows that failed an expectation or have an invalid key or route."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import CheckpointError
from helios.plan.properties import METADATA_FILES
from helios.spark.iceberg import tables
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.maintenance.maintain import Upkeep
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Commit, CommitOptions
from helios.spark.sinks.protocol import Absent, Found, Outcome, Staged
from helios.spark.steps.build import Built
from helios.table.ledger import Record
from helios.table.positions import Batch, Span, same_sources
from helios.table.refs import LEDGER

NAMES = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
COLUMNS = "pipeline string, batch bigint, step string, reason string, position string, payload string, at timestamp"
"""The columns of a quarantine: `payload` is the row as JSON, `position` that of its batch, `step` the expectation."""

COEXIST = {f"write.{command}.isolation-level": "snapshot" for command in ("merge", "delete")}
"""Pipelines delete only their own rows, so rows that others add meanwhile are no conflict."""


class QuarantineSink:
    """The quarantine table of a pipeline, written exactly once per batch like any target.

    Args:
        context: What the sinks of the run share.
        name: The table.
    """

    transactional = True

    def __init__(self, context: SinkContext, name: TableName) -> None:
        self._plan = context.plan
        self._name = name
        self._spark = context.spark
        self._context = context
        self._checkpoint = context.checkpoint
        self._ledger: Ledger | None = None

    @classmethod
    def of(cls, context: SinkContext) -> QuarantineSink | None:
        """The pipeline's quarantine; None if it declares none."""
        name = context.plan.write.quarantine
        return cls(context, name) if name is not None else None

    # writing

    def write(self, batch: Batch, rejected: Sequence[DataFrame]) -> int:
        """Writes the rejected rows of a batch, once; returns how many were written now.

        Rows that former steps rejected of the same batch are replaced, as the target does not have the batch yet.

        Args:
            batch: The batch.
            rejected: The rows, as `payload`, `reason` and `step`.
        """
        if not rejected and (not batch.replayed or tables.load_table(self._spark, self._name) is None):
            return 0
        number = batch.number if self._plan.streaming else self.number(batch.spans)
        batch = replace(batch, number=number, replayed=True)
        if isinstance(self.find(batch), Found):
            return 0
        nothing = self._spark.createDataFrame([], "payload string, reason string, step string")
        with self.stage(batch, Built(reduce(DataFrame.unionByName, rejected or [nothing]))) as staged:
            commit = self.commit(staged) if staged.write is not None else None
        return commit.rows if commit is not None and staged.adds and not commit.again else 0

    def number(self, spans: Sequence[Span]) -> int:
        """The number of a batch pipeline's batch, counted by the record and not by the checkpoint."""
        record = self.last()
        if record is None:
            return 0
        return record.batch + (0 if same_sources(record.position, Batch(record.batch, tuple(spans))) else 1)

    def last(self) -> Record | None:
        return self._open().load()

    def maintain(self) -> list[Upkeep]:
        return []

    def find(self, batch: Batch) -> Outcome:
        commit = self._open().find(batch)
        return Found(commit) if commit is not None else Absent()

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        """Stages rejected rows; `write` is None if there is nothing to write or replace."""
        record = self._open().load()
        written = rows.df.withColumns(
            {
                "pipeline": F.lit(self._plan.pipeline),
                "batch": F.lit(batch.number).cast("bigint"),
                "position": F.lit(json.dumps(batch.position)),
                "at": F.current_timestamp(),
            }
        )
        written = written.select(*NAMES).persist()
        try:
            some = not written.isEmpty()
            replaced = self._own_rows(batch.number) if record is not None and record.batch == batch.number else None

            def write(pending: Transaction) -> None:
                if replaced is not None:
                    pending.sql(f"DELETE FROM target WHERE {replaced}")
                if some:
                    pending.append(written)

            yield Staged(batch, Built(written), write if some or replaced is not None else None, adds=some)
        finally:
            written.unpersist()

    def commit(self, staged: Staged) -> Commit | None:
        assert staged.write is not None
        options = CommitOptions(verify=self._context.verify, retry=self._plan.write.sink.retrying, properties=COEXIST)
        return self._open().commit(staged.rows.df.sparkSession, staged.write, staged.batch, options)

    def _own_rows(self, number: int | None = None) -> str:
        """The SQL condition for the pipeline's rows, of one batch or of all."""
        names = ", ".join(_text(name) for name in (self._plan.pipeline, self._plan.was) if name)
        return f"pipeline IN ({names})" + (f" AND batch = {number}" if number is not None else "")

    # full refresh and new checkpoint

    def empty(self, checkpoint: str) -> None:
        """Deletes all rows of the pipeline, for a full refresh under a new checkpoint."""
        table = tables.load_table(self._spark, self._name)
        if table is not None:
            self._delete(self._own_rows())
            claim = Record(checkpoint=checkpoint, steps=self._plan.fingerprint)
            Ledger(table, self._plan.pipeline, checkpoint, "").claim(claim, forget=self._plan.was)

    def rewind(self, to: Record | None) -> None:
        """Deletes the rows of the last batch if the target does not have it: it is read again under another number.

        Args:
            to: The target's record of the pipeline.
        """
        table = tables.load_table(self._spark, self._name)
        record = self._last_record(table) if table is not None and self._plan.streaming else None
        if record is None or record.position is None or to is None or record.checkpoint != to.checkpoint:
            return
        if record.batch > to.batch:
            self._delete(f"{self._own_rows(record.batch)} AND position = {_text(json.dumps(record.position))}")

    def _delete(self, condition: str) -> None:
        # Deleting is idempotent and needs no record.
        self._spark.sql(f"DELETE FROM {self._name.sql} WHERE {condition}")

    def _last_record(self, table: JavaTable) -> Record | None:
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
            table = tables.load_table(self._spark, self._name)
            if table is None:
                key = LEDGER + self._plan.pipeline
                schema = self._spark.createDataFrame([], COLUMNS).schema
                followed = METADATA_FILES if self._plan.streaming else {}
                properties = {"format-version": "2", **followed, key: claim.as_json()}
                table = tables.create_table(self._spark, self._name, schema, properties)
            missing = {"payload", "reason", "position", "batch"} - set(tables.spark_schema(self._spark, table).names)
            if missing:
                raise CheckpointError(
                    f"{self._name.text} is no quarantine table: it lacks {', '.join(sorted(missing))}.",
                    where=self._plan.declared.sink.origin,
                    fix="give .quarantine() a table of its own; it is created.",
                )
            guard = replace(self._context, checkpoint_id=identity.id).guard(table, self._name)
            ledger = _StepsLedger(table, self._plan.pipeline, identity.id, self._plan.fingerprint, guard=guard)
            record = ledger.load()
            if record is None or record.checkpoint != identity.id:
                # A batch pipeline recognizes identical inputs across checkpoints; a streaming one does not.
                known = self._last_record(table)
                kept = known is not None and (known.checkpoint == identity.id or not self._plan.streaming)
                claim = replace(known, checkpoint=identity.id) if known is not None and kept else claim
                ledger.claim(claim, forget=self._plan.was)
            self._ledger = ledger
        return self._ledger


class _StepsLedger(Ledger):
    """The record of a quarantine, where a batch counts as found only if the current steps wrote it."""

    @override
    def find(self, batch: Batch) -> Commit | None:
        found = super().find(batch)
        record = self.load() if found is not None else None
        return None if record is not None and record.batch == batch.number and record.steps != self.steps else found


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
