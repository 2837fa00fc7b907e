"""The base of the sinks that write each row into the table that the row names. Each table has a ledger record.

The tables of a batch are known only once its rows are computed. Before the first commit, `helios/routes/N.json` in the
checkpoint lists them. If a driver dies between the commits of two tables, the next driver completes the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.maintenance.upkeep import MaintenanceResult
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Found, Outcome, Partial, Sink, Staged
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.routed_tables import foreign_error, gone_error, refuse_wrong_table
from helios.spark.sinks.table import TableSink
from helios.table.positions import Batch, same_entries


class ManyTables(Sink):
    """A `Sink` of tables whose names come from the rows; a subclass stages the batches."""

    def __init__(self, context: SinkContext) -> None:
        self.context = context
        self._sinks: dict[str, TableSink] = {}
        self._read_only_sinks: dict[str, TableSink] = {}  # for tables that were looked up, but not opened for writing
        self._quarantine = QuarantineSink.of(context)
        write = replace(context.plan.write, quarantine=None)
        self._table_context = replace(context, plan=replace(context.plan, write=write))  # without the quarantine

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """The sink of a pipeline that holds its lease, after a check of the tables that the pipeline has written."""
        sink = cls(context)
        sink.verify()
        return sink

    @classmethod
    def unresumable_error(cls, context: SinkContext) -> InputError:
        """The error for --new-checkpoint and --full-refresh."""
        return InputError(
            f"--new-checkpoint and --full-refresh do not apply to {context.plan.pipeline}: each of its many tables "
            "has its own last batch.",
            where=context.plan.origin,
            fix=f"restore the checkpoint from a backup, or {context.restart_hint} under another .named(...).",
        )

    @classmethod
    def existing_tables(cls, context: SinkContext) -> Iterator[tuple[TableName, JavaTable]]:
        """The tables that may hold rows of the pipeline, and its quarantine, in which all rows may be."""
        plan = context.plan
        if not plan.checkpoint:
            return
        names = tables.tables_with_prefix(context.spark, plan.write.table)
        if plan.write.quarantine is not None:
            names.append(plan.write.quarantine)
        for name in names:
            table = tables.load_table(context.spark, name)
            if table is not None:
                yield name, table

    def _tables_in_checkpoint(self) -> dict[str, TableName]:
        """The tables that the checkpoint lists, by the value that names each table."""
        raise NotImplementedError

    def _table_name(self, value: str) -> TableName:
        """The name of the table for a value."""
        raise NotImplementedError

    def _context_of(self, value: str) -> SinkContext:
        """The context for the sink of one table."""
        return self._table_context

    @override
    def maintain(self) -> list[MaintenanceResult]:
        sinks = {**self._read_only_sinks, **self._sinks}
        return [done for sink in sinks.values() for done in sink.maintain()]

    def verify(self) -> None:
        """Checks the tables to which rows were written.

        Raises:
            CheckpointError: A table is gone, was replaced, or was renamed.
            LedgerError: A table was rolled back.
        """
        for name in self._tables_in_checkpoint().values():
            table = tables.load_table(self.context.spark, name)
            if table is None:
                raise gone_error(self.context, name)
            refuse_wrong_table(self.context, name, table)
            ledger = self.context.ledger(table, self.context.plan.write.sink.branch_name, name)
            record = ledger.load()
            if record is None or record.checkpoint != self.context.checkpoint_id:
                raise foreign_error(self.context, name)
            ledger.refuse_rollback(record)

    # finding

    @override
    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up in each of the tables that the checkpoint lists for it."""
        plan = self.context.plan
        routes = self.context.checkpoint.routes(batch.number) if batch.maybe_written else None
        if routes is None or not same_entries(routes["sources"], batch.sources) or self._reruns():
            return Absent()
        if routes["steps"] != plan.fingerprint and not plan.streaming:
            return Absent()  # `stage` refuses the batch, since other steps have already processed its inputs
        commits: list[Commit] = []
        names: list[str] = []
        for value in routes["values"]:
            sink = self._claimed_sink(value)
            commit = self._commit_in(sink, batch) if sink is not None else None
            if sink is not None and commit is not None:
                commits.append(commit)
                names.append(sink.name.text)
        if not commits:
            return Absent()
        if len(commits) < len(routes["values"]):
            return Partial(tuple(names))
        return Found(combined(commits))

    def _claimed_sink(self, value: str) -> TableSink | None:
        """The sink of a table that this checkpoint has claimed; None if there is none."""
        if value not in self._read_only_sinks:
            name, branch = self._table_name(value), self.context.plan.write.sink.branch_name
            table = tables.load_table(self.context.spark, name)
            if table is None:
                return None
            self._read_only_sinks[value] = TableSink(self._context_of(value), name, table, branch)
        sink = self._read_only_sinks[value]
        record = sink.ledger.load()
        return sink if record is not None and record.checkpoint == self.context.checkpoint_id else None

    def _reruns(self) -> bool:
        """True for a batch pipeline whose mode allows it to write the same inputs again in each run."""
        plan = self.context.plan
        return not plan.streaming and plan.write.mode.traits.rewrites_same_inputs

    def _commit_in(self, sink: TableSink, batch: Batch) -> Commit | None:
        """The batch's commit in one table; None if the table lacks the batch."""
        outcome = sink.find(self._numbered(sink, batch))
        return outcome.commit if isinstance(outcome, Found) else None

    def _numbered(self, sink: TableSink, batch: Batch) -> Batch:
        """A batch with its number in one table: each table numbers the batches of a batch pipeline itself."""
        return batch if self.context.plan.streaming else replace(batch, number=sink.number(batch.spans))

    # committing

    @override
    def commit(self, staged: Staged) -> Commit | None:
        results = [part.commit() for part in staged.parts]
        commits = [commit for commit in results if commit is not None]
        if not commits or any(not commit.already_committed for commit in commits):
            self.context.observer.rejected(staged.rows.dropped())
        return combined(commits) if commits else None

    @override
    def reopen(self, batch: Batch) -> None:
        if self._quarantine is not None:
            self._quarantine.reopen(batch)


def combined(commits: list[Commit]) -> Commit:
    """The commits of a batch's tables as one."""
    return Commit(
        snapshot=commits[-1].snapshot,
        rows=sum(c.rows for c in commits),
        files=sum(c.files for c in commits),
        bytes=sum(c.bytes for c in commits),
        already_committed=all(c.already_committed for c in commits),
        retries=sum(c.retries for c in commits),
        write_seconds=sum(c.write_seconds for c in commits),
        commit_seconds=sum(c.commit_seconds for c in commits),
        note=next((c.note for c in commits if c.note), ""),
    )
