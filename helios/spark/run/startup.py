"""Startup validation: checkpoint, pipeline and target must match before the first batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyspark.sql import DataFrame

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.plan.checks.sinks import left_out
from helios.plan.nodes import Plan, ReadPath
from helios.plan.notes import declared_notes
from helios.plan.other_upserts import upserts_of
from helios.spark.checkpoint.files import Checkpoint, Identity
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.audited import settle_audited
from helios.spark.run.claims import first_claim, write_claim
from helios.spark.run.full_refresh import empty_target, first_start
from helios.spark.run.identity import (
    new_identity,
    refuse_changed,
    refuse_foreign,
    renamed_with_its_table,
    with_renamed_sources,
)
from helios.spark.run.new_checkpoint import (
    refuse_lost,
    refuse_lost_order,
    refuse_new_checkpoint,
    resumes_after_publication,
)
from helios.spark.run.other_writers import (
    began_on_empty_tables,
    refuse_rows_of_others,
    refuse_same_sources,
    refuse_two_records,
    refuse_upserts_of_others,
)
from helios.spark.run.quarantines import former_quarantines, quarantines
from helios.spark.run.renamed import move_checkpoint, rename_target_files
from helios.spark.run.upsert_keys import drop_former, keys_folder_of, take_over, upsert_state
from helios.spark.sinks.alignment import SchemaAligner, columns_of
from helios.spark.sinks.appended import AppendLedger, keeps_inputs
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.kinds import OTHER_SINKS, SINGLE_TABLE_SINKS
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.modes import stored_schema
from helios.spark.sinks.protocol import Sink
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.records import newest_record
from helios.spark.sinks.rollbacks import RollbackGuard, forget_lost_replay
from helios.spark.sinks.stored_records import known_records
from helios.spark.sinks.table import apply_layout, create, has_written
from helios.table.ledger import Record


@dataclass(frozen=True)
class Started:
    """A validated start.

    Attributes:
        last_planned: The last batch that an earlier process may have written; -1 for none.
    """

    lease: Lease
    sink: Sink
    last_planned: int


class StartupValidator:
    """Validates a start, and creates what is missing: the checkpoint's identity, the table and its record.

    Args:
        context: The pipeline and its checkpoint; the validator adds the lease and the checkpoint's id.
        compiled: The plan as `helios plan` shows it, before the run has adapted it. The checkpoint stores this plan.
        new_checkpoint: Whether to resume with a new checkpoint at the position in the target's record.
        full_refresh: Whether to empty the target and refill it from the start.
        beside: The pipelines that `--beside` names: their rows of the same sources may be in the target.
        siblings: The pipelines of the script, whose rows may be in the target, too. Each name has its plan if the
            same run starts it, and None otherwise.
    """

    def __init__(
        self,
        context: SinkContext,
        *,
        compiled: Plan,
        new_checkpoint: bool,
        full_refresh: bool,
        beside: Collection[str] = (),
        siblings: Mapping[str, Plan | None] = MappingProxyType({}),
    ) -> None:
        plan = context.plan
        self.context = context
        self.plan = plan
        self.compiled = compiled
        self.spark = context.spark
        self.checkpoint = context.checkpoint
        self.new_checkpoint = new_checkpoint
        self.full_refresh = full_refresh
        self.beside = beside
        self.siblings = siblings
        self.other_sink = OTHER_SINKS.get(
            plan.write.sink.target_kind
        )  # of many tables, or an output; None for one table
        self.branch = plan.write.sink.branch_name
        self._followed_reads = [read for read in plan.reads if read.source.streaming]
        self.followed = tuple(read.name for read in self._followed_reads)
        # A batch pipeline is identified by all of its sources.
        self.sources = self.followed if plan.streaming else tuple(read.ledger_name for read in plan.reads)
        self.uuids = tuple(read.uuid for read in plan.reads if read.source.streaming or not plan.streaming)
        self._stored: Identity | None = None  # the identity as it is stored in the checkpoint

    def start(self, df: DataFrame) -> Started:
        """Validates the start and takes the lease, which the caller releases.

        Args:
            df: The rows to write; only their schema is used.

        Raises:
            CheckpointError: Checkpoint, pipeline and target do not match.
            InputError: The rows do not fit the target, or the target cannot be resumed or refilled.
            LeaseError: Another driver is alive on the checkpoint.
        """
        plan = self.plan
        if self.context.again is not None and plan.streaming:
            raise InputError(
                f"--again is for pipelines that read their sources once, and {plan.pipeline} follows a source.",
                where=plan.origin,
                fix="choose another pipeline of the script with SCRIPT:name, or read all again with --full-refresh.",
            )
        # If the rows give the name of their table, the table is opened when its first row arrives.
        table = tables.load_table(self.spark, plan.write.table) if self.other_sink is None else None
        if (
            table is not None
            and not self.full_refresh
            and resumes_after_publication(self.checkpoint, self._last_record(table))
        ):
            self.new_checkpoint = True
        if self.new_checkpoint or self.full_refresh:
            self._refuse_unresumable(table)
        if table is not None:
            refuse_two_records(plan, table)
        if plan.former_checkpoint is not None and not self.full_refresh:
            self._adopt_former(plan.former_checkpoint, table, df)
        existing = self._verified_identity(table)
        if not (self.new_checkpoint or self.full_refresh):
            self.checkpoint.verify()
        if table is not None:
            self._refuse_schema(table, df)
        elif self.other_sink is None and not (plan.write.iceberg.creates and plan.write.mode.traits.stores_columns):
            raise InputError(f"table {plan.write.table.text} does not exist.", where=plan.declared.sink.origin)
        self._check_other_pipelines(table)
        lease = Lease(self.checkpoint)
        lease.acquire()
        try:
            return self._prepare(lease, existing, table, df)
        except BaseException:
            lease.release()
            raise

    # validation

    def _check_other_pipelines(self, table: JavaTable | None) -> None:
        """Rejects upserts that cannot share the table; notes pipelines of this run that write rows of its source."""
        needs_record = len(self.siblings) > 1 or self.plan.write.mode.upsert is not None
        record = self._last_record(table) if table is not None and needs_record else None
        if not self.full_refresh:
            own = None
            if record is not None:
                folder = keys_folder_of(self.context, "" if self.new_checkpoint else record.checkpoint, record)
                own = upserts_of(record)._replace(keys_are_readable=folder is not None)
            refuse_upserts_of_others(self.plan, table, own, self.beside, self.siblings.values())
        for note in declared_notes(self.plan, record, (), self.siblings.values()):
            self.context.observer.noted(note)

    def _verified_identity(self, table: JavaTable | None) -> Identity | None:
        """The checkpoint's identity, after checks against pipeline and target; None if a new checkpoint begins."""
        replaces_checkpoint = self.new_checkpoint or self.full_refresh
        existing = self._identity(lenient=replaces_checkpoint)
        if existing is not None:
            existing = renamed_with_its_table(self.plan, existing, table)
            refuse_foreign(self.plan, self.checkpoint.location, existing, table)
            if not replaces_checkpoint:
                existing = with_renamed_sources(existing, self.sources, self.uuids)
                refuse_changed(self.plan, self.checkpoint.location, existing, self.sources, table)
            if existing.target != self.plan.write.table.text and not self.full_refresh:
                existing = rename_target_files(self.context, existing)
        if existing is not None and not replaces_checkpoint:
            if table is not None and began_on_empty_tables(self.checkpoint.start() or ()):
                record = self._last_record(table)
                if record is None or record.position is None:
                    # Another pipeline may have written the rows of the source since this one began.
                    refuse_same_sources(self.context, self.plan.write.table, table, {*self.beside, *self.siblings})
            return existing
        for name, target in self._targets(table) if not self.full_refresh else ():
            record = self._last_record(target)
            if record is None:
                refuse_same_sources(self.context, name, target, {*self.beside, *self.siblings})
            elif not replaces_checkpoint and self.plan.streaming:
                refuse_lost(self.plan, name, record)
        return None

    def _refuse_schema(self, table: JavaTable, df: DataFrame, *, moved: bool = True) -> None:
        """Rejects rows that do not fit the table, and an upsert that has lost its order.

        If the checkpoint is not at its final location yet (`moved` is False), the order is not checked.
        """
        write = self.plan.write
        if write.mode.traits.stores_columns:
            columns, table_columns = columns_of(df.schema), columns_of(tables.spark_schema(self.spark, table))
            written = has_written(self.plan, table)
            not_stored = left_out(write.iceberg, columns, table_columns, has_written=written)
            if written and moved and write.mode.order_by is not None:
                refuse_lost_order(self.plan, not_stored, upsert_state(self.context, self._last_record(table)))
            SchemaAligner(self.spark, self.plan, write.table, table).check(stored_schema(df, write.mode, not_stored))

    def _refuse_unresumable(self, table: JavaTable | None) -> None:
        """Rejects --new-checkpoint and --full-refresh for pipelines that cannot be resumed or refilled."""
        if self.other_sink is not None:
            raise self.other_sink.unresumable_error(self.context)
        if self.full_refresh:
            return
        resumable = self.plan.path is ReadPath.RANGES
        record = self._last_record(table) if table is not None else None
        if self.followed and not resumable and not (record is not None and record.only_began):
            raise InputError(
                f"--new-checkpoint cannot resume {self.plan.pipeline}: only a stateless pipeline can resume at "
                "the position in its target's record.",
                where=self.plan.origin,
                fix="restore the checkpoint from a backup, or run under a new name into a new target.",
            )

    def _identity(self, *, lenient: bool) -> Identity | None:
        """The identity of the checkpoint; `lenient` treats a damaged one as missing."""
        try:
            self._stored = self.checkpoint.identity()
            return self._stored
        except CheckpointError:
            if lenient:
                return None
            raise

    def _targets(self, table: JavaTable | None) -> Iterator[tuple[TableName, JavaTable]]:
        """The target if it is one table; otherwise the existing tables of a sink of many tables, and the quarantine."""
        if table is not None:
            yield self.plan.write.table, table
        if self.other_sink is not None:
            yield from self.other_sink.existing_tables(self.context)

    def _adopt_former(self, former: str, table: JavaTable | None, df: DataFrame) -> None:
        """Checks the checkpoint of the pipeline's former name, and moves it to the new name, once."""
        old = Checkpoint(self.spark, former)
        if self._identity(lenient=self.new_checkpoint) is not None:
            return
        identity = old.identity()
        if identity is not None and identity.pipeline == self.plan.was:
            refuse_foreign(self.plan, self.checkpoint.location, identity, table)
            if not self.new_checkpoint:
                identity = with_renamed_sources(identity, self.sources, self.uuids)
                refuse_changed(self.plan, self.checkpoint.location, identity, self.sources, table)
            if table is not None:
                self._refuse_schema(table, df, moved=False)
            if table is not None and not self.new_checkpoint:
                # Without `landings`, the guard writes nothing into a checkpoint.
                guard = RollbackGuard(table, identity.pipeline, identity.id, lenient=True)
                ledger = Ledger(table, identity.pipeline, identity.id, "", self.branch, guard=guard)
                ledger.refuse_rollback(self._last_record(table))
            self._check_other_pipelines(table)
            move_checkpoint(old, self.checkpoint)

    def _prepare(self, lease: Lease, existing: Identity | None, table: JavaTable | None, df: DataFrame) -> Started:
        plan = self.plan
        if existing is not None:
            existing = replace(existing, path=plan.path.value)
            if existing != self._stored:
                self.checkpoint.create(existing)
        identity = existing or new_identity(self.plan, self.sources, self.uuids)
        old = self._verified_record(table, existing) if table is not None and not self.full_refresh else None
        upserts = plan.write.mode.upsert is not None
        record_before = self._last_record(table) if table is not None and upserts else None
        if table is not None:
            apply_layout(self.spark, plan, table)
        if existing is None:
            self._reset(lease, identity, old, table)
            # The id is stored before the record names it: if this driver dies in between, the next one has the same id.
            self.checkpoint.create(identity)
        self.checkpoint.keep_plan(self.compiled)
        former, folder = former_quarantines(plan, old), keys_folder_of(self.context, identity.id, old)
        context = replace(
            self.context, lease=lease, checkpoint_id=identity.id, former_quarantines=former, keys_folder=folder
        )
        last = max(self.checkpoint.batches("offsets"), default=-1)
        quarantine = QuarantineSink.of(context)
        if quarantine is not None and existing is not None:
            quarantine.verify()
        if self.other_sink is not None:
            if identity.pipeline != plan.pipeline:
                self.checkpoint.create(replace(identity, pipeline=plan.pipeline))
            return Started(lease=lease, sink=self.other_sink.open(context, last), last_planned=last)
        claim = replace(first_claim(plan, identity, old, self.beside), keys=folder)
        if existing is None and old is not None and table is not None and keeps_inputs(plan):
            # Inputs that were rolled back do not count. Only the stored record shows them: `old` may name the head.
            kept = AppendLedger(context, table, plan.write.table, self.branch).without_rolled_back(
                self._last_record(table) or old
            )
            claim = replace(claim, position=kept.position, appended=kept.appended)
        if table is None:
            table = create(self.spark, plan, plan.write.table, df, {context.ledger_key: claim.as_json()})
            apply_layout(self.spark, plan, table)
        ledger = context.ledger(table, self.branch, plan.write.table)
        write_claim(self.spark, plan, ledger, identity, claim, old=old)
        if upserts:
            drop_former(context, record_before, ledger.load(), known_records(table).values())
        if identity.pipeline != plan.pipeline or not identity.target_uuid:
            self.checkpoint.create(replace(identity, pipeline=plan.pipeline, target_uuid=str(table.uuid())))
        if self.followed:
            ledger.refuse_behind(last)
        sink_class = SINGLE_TABLE_SINKS[plan.write.sink.target_kind]
        return Started(lease=lease, sink=sink_class(context, plan.write.table, table, self.branch), last_planned=last)

    def _verified_record(self, table: JavaTable, existing: Identity | None) -> Record | None:
        """The target's record, after a check that the target still holds the record's batch.

        For a new checkpoint, the record names the snapshot after which the checkpoint continues.
        """
        known = existing.id if existing is not None else None
        settle_audited(self.context, table, known, resumes=self.new_checkpoint)
        old = self._last_record(table)
        id = known or (old.checkpoint if old is not None else "")
        ledger = replace(self.context, checkpoint_id=id).ledger(table, self.branch, self.plan.write.table)
        if self.new_checkpoint and old is not None:
            return ledger.guard.for_new_checkpoint(old, ledger.head())
        ledger.refuse_rollback(old)
        return old

    def _reset(self, lease: Lease, identity: Identity, old: Record | None, table: JavaTable | None) -> None:
        """Resets checkpoint, quarantine and target for --new-checkpoint or --full-refresh; otherwise does nothing."""
        context = replace(self.context, lease=lease)
        if self.new_checkpoint:
            if (quarantine := QuarantineSink.of(context)) is not None:
                quarantine.refuse_without_replay()
            self._reset_checkpoint(identity.id, old, table)
            for each in quarantines(context, old):
                each.rewind(old, table)
        elif self.full_refresh:
            record = self._last_record(table) if table is not None else None
            start = first_start(self.spark, self.plan, record, self.checkpoint)
            # The table is emptied first. If a driver dies after that, the table's record rejects the old checkpoint.
            if table is not None:
                refuse_rows_of_others(self.context, table)
                steps = self.plan.fingerprint
                claim = first_claim(self.plan, identity, record, self.beside)
                folder = keys_folder_of(self.context, identity.id, None)
                claim = replace(claim, position=None, appended=None, rolled_back=False)
                claim = replace(claim, steps=steps, start=start, keys=folder)
                ledger = Ledger(table, self.plan.pipeline, identity.id, steps, self.branch)
                empty_target(ledger, claim, self.plan.write.pipeline_names, self.plan.write.sink.retry_policy)
            for each in quarantines(context, record):
                each.delete_own_rows(identity.id)
            self.checkpoint.clear()
            if start is not None:
                self.checkpoint.write_start(start)

    def _last_record(self, table: JavaTable) -> Record | None:
        return newest_record(table, self.plan.write.pipeline_names, self.branch)

    def _reset_checkpoint(self, id: str, old: Record | None, table: JavaTable | None) -> None:
        """Clears the checkpoint for a new one with this id, which starts at the position in the target's record."""
        entries = list(old.position["sources"]) if old and old.position else []
        start = old.start if old is not None and old.only_began else None
        head = Ledger(table, self.plan.pipeline, "", "", self.branch).head() if table is not None else None
        refuse_new_checkpoint(self.plan, self._followed_reads, entries, holds_rows=head is not None and start is None)
        if table is not None:
            forget_lost_replay(table, self.plan.write.pipeline_names, head)
        state = upsert_state(self.context, old)
        # Without a record, the pipeline of a damaged checkpoint is unknown, so the checkpoint is refused.
        identity = self._identity(lenient=old is not None)
        keys_elsewhere = old is not None and old.keys is not None
        if not keys_elsewhere and (identity is None or old is None or identity.id == old.checkpoint):
            state.forget_after(old.batch if old is not None else -1)  # the keys of a batch that was never committed
        if self.plan.write.mode.upsert is not None:
            take_over(self.context, id, old)
        self.checkpoint.rewind()
        if start is not None:
            self.checkpoint.write_start(start)
        elif entries and self.followed:
            self.checkpoint.write_start(
                [
                    {"declared": e["from"], "branch": e["branch"], "uuid": e["uuid"], "place": e["place"]}
                    for e in entries
                ]
            )
