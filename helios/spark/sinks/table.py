"""The table sink: writes each batch exactly once into one table, or one branch of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.model.modes import Mode
from helios.plan.checks.sinks import left_out, sort_terms
from helios.plan.nodes import Plan
from helios.plan.properties import new_table_properties
from helios.spark.iceberg import freshness, tables
from helios.spark.iceberg.failures import is_outage
from helios.spark.iceberg.history import growth
from helios.spark.jvm.errors import unreadable_file
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.maintenance.upkeep import Maintainer, MaintenanceResult
from helios.spark.sinks import modes
from helios.spark.sinks.alignment import SchemaAligner, columns_of
from helios.spark.sinks.appended import ledger_of
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.merge import invalid_reason
from helios.spark.sinks.options import Commit, CommitOptions
from helios.spark.sinks.protocol import Absent, Found, Outcome, Staged
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.shared_keys import KEYS_STAMP, SharedKeys
from helios.spark.steps.build import Built
from helios.spark.steps.steps import rejected
from helios.table import ledger
from helios.table.ledger import Record, Starts
from helios.table.positions import Batch, Span


class TableSink:
    transactional = True

    def __init__(self, context: SinkContext, name: TableName, table: JavaTable, branch: str | None) -> None:
        self.context = context
        self.name = name
        self.table = table
        self.branch = branch
        self._growth_noted = False  # whether this run has noted that the history is long
        self.ledger = ledger_of(context, table, branch, name)
        self.aligner = SchemaAligner(context.spark, context.plan, name, table, context.observer.noted)
        self.upsert_state = context.upsert_state(name, branch)
        self.shared_keys = SharedKeys(context, name, branch)
        self._quarantine = QuarantineSink.of(context)
        self._maintainer: Maintainer | None = None
        maintenance = context.plan.write.iceberg.maintenance
        if maintenance is not None:
            catalogs, notes = context.plan.all_catalogs, context.checkpoint.files
            self._maintainer = Maintainer(
                context.spark, name, maintenance, catalogs=catalogs, notes=notes, branch=branch
            )

    def maintain(self) -> list[MaintenanceResult]:
        return self._maintainer.after_batch() if self._maintainer is not None else []

    def last(self) -> Record | None:
        return self.ledger.last()

    def store_starts(self, starts: Starts) -> None:
        record = self.ledger.load()
        if record is not None and record.start is None and record.batch < 0 and record.position is None:
            self.ledger.claim(replace(record, start=starts))

    # finding

    def number(self, spans: Sequence[Span]) -> int:
        return self.ledger.number(spans)

    def find(self, batch: Batch) -> Outcome:
        commit = self.ledger.decide(batch)
        return Found(commit) if commit is not None else Absent()

    # staging

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        has_rejects, streaming = False, self.context.plan.streaming
        if batch.maybe_written and streaming:
            for quarantine in self.context.former_quarantines:
                QuarantineSink(self.context, quarantine).withdraw(batch)
        if self._quarantine is not None:
            rows = split_invalid(rows, self.context.plan.write.mode)
            # Rejected rows are written before the batch: once a batch is committed, it is not staged again.
            self.context.observer.rejected(self._quarantine.write(batch, rows.rejected))
            # A batch with rejected rows is committed even if it has no other rows. A batch pipeline does not need this:
            # its quarantine records which inputs were processed.
            has_rejects = self._quarantine.has_rejects and streaming
        with modes.writer(self._mode_batch(batch, rows)) as write:
            yield Staged(batch, rows, write, has_rejects=has_rejects)

    def _mode_batch(self, batch: Batch, rows: Built) -> modes.ModeBatch[Mode]:
        plan = self.context.plan
        stored = tables.spark_schema(self.context.spark, self.table)
        self.upsert_state.saved_folder = None
        return modes.ModeBatch(
            rows=rows,
            number=batch.number,
            mode=plan.write.mode,
            table=self.name.text,
            where=plan.declared.sink.origin,
            left_out=left_out(
                plan.write.iceberg,
                columns_of(rows.schema),
                columns_of(stored),
                has_written=has_written(plan, self.table),
            ),
            upsert_state=self.upsert_state,
            shared=self.shared_keys,
            aligner=self.aligner,
            stored_columns=frozenset((field.name, field.dataType) for field in stored.fields),
        )

    def reopen(self, batch: Batch) -> None:
        if self._quarantine is not None:
            self._quarantine.reopen(batch)

    # committing

    def commit(self, staged: Staged) -> Commit | None:
        commit = self._commit(staged)
        freshness.verify(self.name, self.table)
        if commit is None or not commit.already_committed:  # there is no commit if every row of the batch was dropped
            self.context.observer.rejected(staged.rows.dropped())
        if commit is not None and not commit.already_committed:
            self._note_growth()
            commit = replace(commit, note=self.ledger.note)
        return commit

    def _note_growth(self) -> None:
        """Reports once per run that the history is long, if the sink expires no snapshots."""
        plan = self.context.plan
        maintenance = plan.write.iceberg.maintenance
        expires = maintenance is not None and maintenance.expire is not None
        if self._growth_noted or not plan.streaming or expires:
            return
        advice = growth(self.table).advice()
        if advice is not None:
            self._growth_noted = True
            self.context.observer.noted(f"{self.name.text} has {advice}")

    def _commit(self, staged: Staged) -> Commit | None:
        assert staged.write is not None
        spark = staged.rows.session
        with self.failures_observed():
            return self.ledger.commit(spark, staged.write, staged.batch, self.options(staged))

    def options(self, staged: Staged) -> CommitOptions:
        options = self.context.options()
        commits_empty = options.commits_empty or staged.has_rejects
        saved = self.upsert_state.saved_folder if self.context.keys_folder is not None else None
        if saved is None:
            return replace(options, commits_empty=commits_empty)
        # Other pipelines read this upsert state up to the last committed batch, so even a batch that only adds to the
        # state is committed.
        return replace(options, commits_empty=True, stamps={**options.stamps, KEYS_STAMP: saved})

    @contextmanager
    def failures_observed(self) -> Iterator[None]:
        """Reports a failed commit within the block to the observer."""
        try:
            yield
        except Exception as error:
            observer = self.context.observer
            if unreadable_file(error) is None:  # a batch with an unreadable file may run again without the file
                report = observer.commit_postponed if is_outage(error) else observer.commit_failed
                report()
            raise


def has_written(plan: Plan, table: JavaTable) -> bool:
    return ledger.has_written(table.properties().get, plan.write.pipeline_names, table.name())


def split_invalid(rows: Built, mode: Mode) -> Built:
    """Keeps the valid rows and rejects the others."""
    if not mode.traits.keyed:
        return rows
    reason = invalid_reason(mode)
    invalid = rejected(rows.df.where(reason.isNotNull()), reason, "")
    valid = rows.df.where(reason.isNull())
    return Built(valid, rows.native, [*rows.rejected, invalid], rows.counted)


def create(spark: SparkSession, plan: Plan, name: TableName, df: DataFrame, properties: Mapping[str, str]) -> JavaTable:
    """Creates the target of a pipeline as its sink declares it."""
    sink = plan.write.iceberg
    return tables.create_table(
        spark,
        name,
        modes.stored_schema(df, sink.mode, left_out(sink, columns_of(df.schema), None)),
        {**new_table_properties(sink, followed=plan.streaming), **properties},
        partitioning=sink.partitioning or (),
        sort=sort_terms(sink),
    )


def ensure_branch(table: JavaTable, branch: str) -> None:
    """Creates a branch from main unless it exists."""
    table.refresh()
    if not table.refs().containsKey(branch):
        table.manageSnapshots().createBranch(branch).commit()
        table.refresh()


def apply_layout(spark: SparkSession, plan: Plan, table: JavaTable) -> None:
    """Changes a table's partitioning and sort order to those that the sink declares, and creates its branch."""
    sink = plan.write.iceberg
    if sink.partitioning is not None and sink.evolves_partitioning:
        tables.replace_partition_spec(spark, table, sink.partitioning)
    if sink.sort:
        tables.replace_sort_order(spark, table, sort_terms(sink))
    if sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
