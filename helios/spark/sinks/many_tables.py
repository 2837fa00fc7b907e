"""The common base of the sinks that write many tables, which rows name: each table has its own record.

Which tables a batch writes is known only when its rows are: a manifest in the checkpoint lists them before the first
commit. A batch that a driver left between two tables is completed by the next one.
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
from helios.spark.maintenance.upkeep import Upkeep
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Found, Outcome, Partial, Sink, Staged
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.routed_tables import foreign_error, gone_error, refuse_other
from helios.spark.sinks.table import TableSink
from helios.table.positions import Batch, same_entries


class ManyTables(Sink):
    """A `Sink` of tables that rows name; a subclass stages them.

    Args:
        context: What the sinks of the run share.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context
        self._tables: dict[str, TableSink] = {}
        self._found_tables: dict[str, TableSink] = {}  # looked up, but not opened for writing
        self._quarantine = QuarantineSink.of(context)
        write = replace(context.plan.write, quarantine=None)
        self._each = replace(context, plan=replace(context.plan, write=write))

    @classmethod
    def open(cls, context: SinkContext, planned: int) -> Self:
        """The sink of a pipeline that has its lease; what it has written is looked at.

        Args:
            context: What the sinks of the run share.
            planned: The last batch that an earlier process may have written; -1 for none.
        """
        sink = cls(context)
        sink.verify()
        return sink

    @classmethod
    def unresumable(cls, context: SinkContext) -> InputError:
        """The error for --new-checkpoint and --full-refresh."""
        return InputError(
            f"--new-checkpoint and --full-refresh do not apply to {context.plan.pipeline}: each of its many tables "
            "has its own last batch.",
            where=context.plan.origin,
            fix=f"restore the checkpoint from a backup, or {context.restart_hint} under another .named(...).",
        )

    @classmethod
    def existing_tables(cls, context: SinkContext) -> Iterator[tuple[TableName, JavaTable]]:
        """The tables that may hold rows of the pipeline."""
        plan = context.plan
        quarantine = plan.write.quarantine  # knows of rows where no table has any
        names = tables.tables_with_prefix(context.spark, plan.write.table) if plan.checkpoint else []
        for name in (*names, *([quarantine] if quarantine is not None and plan.checkpoint else [])):
            if (table := tables.load_table(context.spark, name)) is not None:
                yield name, table

    def _known(self) -> dict[str, TableName]:
        """The tables of the pipeline, by value."""
        raise NotImplementedError

    def _name(self, value: str) -> TableName:
        """The table of a value."""
        raise NotImplementedError

    def _context_of(self, value: str) -> SinkContext:
        """The context for the sink of one table."""
        return self._each

    @override
    def maintain(self) -> list[Upkeep]:
        sinks = {**self._found_tables, **self._tables}
        return [done for sink in sinks.values() for done in sink.maintain()]

    def verify(self) -> None:
        """Looks at the tables that rows went to.

        Raises:
            CheckpointError: One of them is gone, was replaced, or has another one's name.
            LedgerError: One of them was rolled back.
        """
        for name in self._known().values():
            table = tables.load_table(self.context.spark, name)
            if table is None:
                raise gone_error(self.context, name)
            refuse_other(self.context, name, table)
            ledger = self.context.ledger(table, self.context.plan.write.sink.branch_name, name)
            record = ledger.load()
            if record is None or record.checkpoint != self.context.checkpoint_id:
                raise foreign_error(self.context, name)
            ledger.refuse_rollback(record)

    # finding

    @override
    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up in each table of its manifest."""
        plan = self.context.plan
        manifest = self.context.checkpoint.routes(batch.number) if batch.replayed else None
        if manifest is None or not same_entries(manifest["sources"], batch.sources) or self._reruns():
            return Absent()
        if manifest["steps"] != plan.fingerprint and not plan.streaming:
            return Absent()  # stage() rejects rows of other steps over the same inputs
        commits: list[Commit] = []
        names: list[str] = []
        for value in manifest["values"]:
            sink = self._known_sink(value)
            commit = self._found(sink, batch) if sink is not None else None
            if sink is not None and commit is not None:
                commits.append(commit)
                names.append(sink.name.text)
        if not commits:
            return Absent()
        return Found(combined(commits)) if len(commits) == len(manifest["values"]) else Partial(tuple(names))

    def _known_sink(self, value: str) -> TableSink | None:
        """The sink of a table that this checkpoint has claimed; None if there is none."""
        if value not in self._found_tables:
            name, branch = self._name(value), self.context.plan.write.sink.branch_name
            table = tables.load_table(self.context.spark, name)
            if table is None:
                return None
            self._found_tables[value] = TableSink(self._context_of(value), name, table, branch)
        sink = self._found_tables[value]
        record = sink.ledger.load()
        return sink if record is not None and record.checkpoint == self.context.checkpoint_id else None

    def _reruns(self) -> bool:
        plan = self.context.plan
        return not plan.streaming and plan.write.mode.traits.reruns

    def _found(self, sink: TableSink, batch: Batch) -> Commit | None:
        """The batch's commit in one table, by its number there."""
        outcome = sink.find(self._numbered(sink, batch))
        return outcome.commit if isinstance(outcome, Found) else None

    def _numbered(self, sink: TableSink, batch: Batch) -> Batch:
        """A batch by its number in one table: a batch pipeline has none, and each table counts its own."""
        return batch if self.context.plan.streaming else replace(batch, number=sink.number(batch.spans))

    # committing

    @override
    def commit(self, staged: Staged) -> Commit | None:
        commits = [commit for part in staged.parts if (commit := part.commit()) is not None]
        if not commits or any(not commit.again for commit in commits):
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
        again=all(c.again for c in commits),
        retries=sum(c.retries for c in commits),
        write_seconds=sum(c.write_seconds for c in commits),
        commit_seconds=sum(c.commit_seconds for c in commits),
        note=next((c.note for c in commits if c.note), ""),
    )
