"""The mirror with `atomic=True`: all tables of a batch change in one commit of the catalog.

A control table changes in the same commit. Its single row shows the progress of the mirror: the batch, the position in
the topics, and the snapshot of each table.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.errors import CheckpointError, InputError
from helios.plan.properties import METADATA_FILES
from helios.spark.iceberg import catalog_commit, freshness, tables
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.joint import Change, JointCommit
from helios.spark.sinks.many_tables import combined
from helios.spark.sinks.mirror import CONTROL, MirrorSink, StagedTable
from helios.spark.sinks.options import Commit, CommitOptions
from helios.spark.sinks.protocol import Found, Outcome, Partial, Staged
from helios.spark.sinks.routed_tables import foreign_error
from helios.spark.sinks.table import TableSink
from helios.table.ledger import Record
from helios.table.positions import Batch

COLUMNS = "pipeline string, batch bigint, position string, tables map<string, bigint>, at timestamp"


class AtomicMirrorSink(MirrorSink):
    """A mirror whose tables change together."""

    _control: TableSink

    @override
    def verify(self) -> None:
        catalog_commit.verify(self.context.spark, self._table_name(CONTROL))
        super().verify()
        self._control = self._open_control()

    # the control table

    def _open_control(self) -> TableSink:
        """The control table, which the first start creates.

        Raises:
            CheckpointError: The control table is gone, was replaced, or belongs to another checkpoint.
            LedgerError: The control table was rolled back.
        """
        context, plan = self.context, self.context.plan
        has_default_name = plan.pipeline == plan.write.table.text
        suffix = re.sub(r"[^A-Za-z0-9_]", "_", plan.pipeline)
        name = self._table_name(CONTROL if has_default_name else f"{CONTROL}_{suffix}")
        known, table = context.checkpoint.tables(), tables.load_table(context.spark, name)
        if table is None:
            if name.text in known:
                raise self._lost_error(name.text, "is gone")
            claim = Record(checkpoint=context.checkpoint_id, steps=plan.fingerprint)
            # If a user has removed the name from tables.json, the checkpoint still notes a batch of the former table.
            context.landings(name).forget()
            metadata_files = METADATA_FILES if plan.streaming else {}
            properties = {"format-version": "2", **metadata_files, context.ledger_key: claim.as_json()}
            table = tables.create_table(context.spark, name, _columns(context.spark), properties)
        if known.get(name.text) not in (None, str(table.uuid())):
            raise self._lost_error(name.text, "is not the same table as before")
        self._require_control_table(name.text, table)
        sink = TableSink(self._table_context, name, table, None)
        record = sink.last()
        if record is None or record.checkpoint != context.checkpoint_id:
            raise foreign_error(context, name)
        if name.text not in known:
            context.checkpoint.write_tables({**known, name.text: str(table.uuid())})
        return sink

    def _lost_error(self, name: str, why: str) -> CheckpointError:
        return CheckpointError(
            f"the control table {name} of {self.context.plan.pipeline} {why}; the mirrored tables keep their rows and "
            "their own records, and nothing was written.",
            where=self._declared.origin,
            fix="restore the table. Or drop the table of this name, if any, and take the name out of "
            f"{self.context.checkpoint.location}/helios/tables.json: the next start creates a new control table, and "
            "the next batch writes its row.",
        )

    def _require_control_table(self, name: str, table: JavaTable) -> None:
        columns = tables.spark_schema(self.context.spark, table).names
        if not {"pipeline", "batch", "position", "tables"} <= set(columns):
            raise InputError(
                f"{name} has the name of the mirror's control table, but is another table; nothing was written.",
                where=self._declared.origin,
                fix="rename that table, or mirror into another namespace.",
            )

    # finding

    @override
    def find(self, batch: Batch) -> Outcome:
        if not batch.maybe_written or self._reruns():
            return super().find(batch)
        commit = self._commit_in(self._control, batch)
        if commit is not None:
            return Found(commit)
        outcome = super().find(batch)
        if not isinstance(outcome, Found):
            return outcome
        # The catalog server died within a commit: all mirrored tables have the batch, but the control table does not.
        routes = self.context.checkpoint.routes(batch.number)
        values = routes["values"] if routes is not None else []
        return Partial(tuple(self._table_name(value).text for value in values))

    # committing

    @override
    def commit(self, staged: Staged) -> Commit | None:
        parts = [part for part in staged.parts if isinstance(part, StagedTable)]
        changes = [
            Change(part.sink, part.staged.batch, part.staged.write)
            for part in parts
            if part.staged is not None and part.staged.write is not None
        ]
        commits = [part.existing_commit for part in parts if part.existing_commit is not None]
        is_partly_committed = bool(commits) and self._commit_in(self._control, staged.batch) is None
        if changes or is_partly_committed:
            spark, batch = staged.rows.session, staged.batch
            joint = JointCommit(spark, batch, self.context.options(), partial(self._last_change, spark, batch))
            with self._control.failures_observed():
                commits += joint.commit(changes, begun=is_partly_committed)
            for change in changes:
                freshness.verify(change.sink.name, change.sink.table)
        if not commits or any(not commit.already_committed for commit in commits):
            self.context.observer.rejected(staged.rows.dropped())
        return combined(commits) if commits else None

    def _last_change(self, spark: SparkSession, batch: Batch, new: dict[str, int]) -> tuple[Change, CommitOptions]:
        """The change of the control table's row, which is written last.

        Args:
            new: The new snapshots of the other tables, by table name.
        """
        batch = self._numbered(self._control, batch)
        self._control.find(batch)  # notes the head of the table, against which the change is validated
        snapshots = {**self._snapshots(), **new}
        row = (self.context.plan.pipeline, batch.number, json.dumps(batch.position), snapshots, datetime.now(UTC))
        rows = spark.createDataFrame([row], _columns(spark))

        def write(pending: Transaction) -> None:
            pending.overwrite(rows, "true", {})

        options = CommitOptions(retry=self._declared.retry_policy, verify=self.context.verify)
        return Change(self._control, batch, write), options

    def _snapshots(self) -> dict[str, int]:
        """The current snapshots of the tables, by table name; empty tables have none."""
        heads: dict[str, int] = {}
        for value, name in self._tables_in_checkpoint().items():
            sink = self._sinks.get(value) or self._claimed_sink(value)
            if sink is not None:
                sink.table.refresh()
                head = sink.table.currentSnapshot()
                if head is not None:
                    heads[name.text] = int(head.snapshotId())
        return heads


def _columns(spark: SparkSession) -> StructType:
    return spark.createDataFrame([], COLUMNS).schema
