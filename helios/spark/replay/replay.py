"""Replays a quarantine: sends its rows through the current steps and into the target.

A replay commits as `<pipeline>.replay`, while it holds the pipeline's lease. It writes two records: one in the target
with the rows, then one in the quarantine when it removes the rows there. Until both are written, the checkpoint has the
replay's notes, from which the next replay finishes it: if the target has the rows, only the quarantine is updated.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import CheckpointError, HeliosError, InputError, LedgerError, NotFound, near_miss
from helios.plan.nodes import Plan, ReadPath, ReadPlan
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.protocol import current_rows, open_source
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg import tables
from helios.spark.iceberg.failures import user_error
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.replay.checks import ReplayChecks
from helios.spark.replay.notes import Notes, State
from helios.spark.replay.payload import Payloads, parse_error
from helios.spark.replay.routed import ReplayRoutedSink
from helios.spark.replay.upsert_state import ReplayedUpsertState
from helios.spark.run.query import keeps_state
from helios.spark.sinks.applied_batches import record_applied_batches
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.kinds import SINGLE_TABLE_SINKS
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Commit, CommitOptions
from helios.spark.sinks.protocol import Found, Sink
from helios.spark.sinks.quarantine import NAMES, SNAPSHOT_ISOLATION, QuarantineSink
from helios.spark.sinks.route import RoutedSink
from helios.spark.sinks.shared_keys import SharedKeys
from helios.spark.sinks.table import TableSink
from helios.spark.steps.build import Built, build
from helios.table.ledger import Record
from helios.table.refs import REPLAY


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Attributes:
        taken: The number of rows that were removed from the quarantine.
        moved: The number of taken rows that now fail in another step, and were quarantined again.
        stayed: The number of rows that fail in the same step again, and stay in the quarantine.
        of_sources: The number of rows that a source rejected, which are not replayed.
        waiting: The number of rows of an unfinished batch, which are not replayed: the next run repeats the batch.
        snapshot: The snapshot of the target; None if it has not changed.
        resumed: Whether the target already had the rows, from a replay that died.
    """

    pipeline: str
    target: str
    quarantine: str
    taken: int = 0
    moved: int = 0
    stayed: int = 0
    of_sources: int = 0
    waiting: int = 0
    snapshot: int | None = None
    resumed: bool = False


SOURCE_SUFFIXES = (".on_bad_row", ".on_bad_file")
"""The endings of the column `step` if a source, and not a step, rejected the row or file."""


class Replay:
    """The replay of one pipeline's quarantine.

    Args:
        plan: The pipeline, compiled from the current script.
        step: Replays only rows whose step contains this text; the empty text means null keys and routes.

    Raises:
        InputError: The pipeline cannot be replayed; the message names the reason.
    """

    def __init__(self, plan: Plan, spark: SparkSession, step: str | None = None) -> None:
        if plan.write.quarantine is None:
            raise InputError(
                f"{plan.pipeline} has no quarantine.",
                where=plan.declared.sink.origin,
                fix='give its sink one: .quarantine("ns.rejected").',
            )
        self.plan = plan
        self.spark = spark
        self.step = step
        self.quarantine = plan.write.quarantine
        self._of_sources = self._waiting = 0
        self._refuse()

    def _refuse(self) -> None:
        """Refuses pipelines whose rows depend on other rows, or replace other rows."""
        plan, mode = self.plan, self.plan.write.mode
        why = None
        if plan.path is ReadPath.STATEFUL:
            why = f"it is a stateful stream ({plan.why}), whose state a replay does not have"
        elif plan.write.sink.mirrors:
            why = "its rows are Debezium's records of many tables"
        elif mode.traits.replaces_foreign_rows:
            why = f"its mode is {mode.text()}: the rows would replace the existing ones"
        elif any(read.source.carries_order for read in plan.reads):
            why = "its rows are changes, and a quarantined change has lost its order: it could replace a newer row"
        elif plan.streaming and keeps_state(self._as_stream()):
            why = "a callable keeps state between batches, which a replay does not have"
        if why is not None:
            raise InputError(
                f"the quarantine of {plan.pipeline} cannot be replayed: {why}.",
                where=plan.origin,
                fix=f"read {self.quarantine.text} in another pipeline.",
            )

    def _as_stream(self) -> DataFrame:
        context = SourceContext(plan=self.plan, spark=self.spark)

        def rows(index: int, read: ReadPlan) -> DataFrame:
            return open_source(context, index).stream() if read.source.streaming else current_rows(context, index)

        return build(self.plan, rows).df

    def run(self) -> Replayed:
        """Replays the quarantine.

        Raises:
            HeliosError: The rows cannot be replayed. Nothing is lost: the next replay resumes.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="helios-") as folder:
                checkpoint = Checkpoint(self.spark, self.plan.checkpoint or folder)
                self._refuse_foreign(checkpoint)
                lease = Lease(checkpoint)
                lease.acquire()
                try:
                    checkpoint.keep_plan(self.plan, of_run=False)
                    return self._replay(lease, checkpoint)
                finally:
                    lease.release()
        except HeliosError:
            raise
        except Exception as error:
            raise (parse_error(error, self.plan) or user_error(error, self.plan)) from error

    def _refuse_foreign(self, checkpoint: Checkpoint) -> None:
        identity = checkpoint.identity()
        if not self.plan.checkpoint or (identity and identity.pipeline in (self.plan.pipeline, self.plan.was)):
            return
        reason = f"belongs to pipeline {identity.pipeline!r}" if identity else "is not there"
        first_run = "run the pipeline first; a lost checkpoint is replaced with `helios run --new-checkpoint`."
        raise CheckpointError(
            f"the checkpoint {checkpoint.location} of {self.plan.pipeline} {reason}; nothing was replayed.",
            where=self.plan.declared.sink.origin,
            fix="give each pipeline its own .checkpoint(...)." if identity else first_run,
        )

    # one replay

    def _replay(self, lease: Lease, checkpoint: Checkpoint) -> Replayed:
        plan, table = self.plan, self._table(checkpoint)
        notes = Notes(self.spark, checkpoint)
        checks = ReplayChecks(plan, self.spark, checkpoint, table)
        checks.refuse_rolled_back()
        state = checks.interrupted(notes.state())
        ledger = Ledger(table, state.pipeline if state else plan.pipeline + REPLAY, str(table.uuid()), "")
        number = self._number(ledger)
        if state is not None and state.number != number:
            state = None  # that replay died after its last commit, which is in the quarantine
        sink = self._sink(ledger, lease, checkpoint, notes)
        landed = self._commit_in(sink, state) if state is not None else None
        payloads = None
        if state is None or (landed is None and sink.transactional):
            # The target has no row of the replay, so the rows are selected again, with the current steps.
            payloads = Payloads(plan, self.spark)
            new = self._new_state(ledger, table, number)
            state = self._begin(sink, notes, payloads, new, checks, claimed=state is not None)
            if not notes.started:
                return self._result(state)
            sink.find(state.batch)  # refreshes the table against which the commit is validated
        elif landed is None and state.steps != plan.fingerprint:
            raise InputError(
                f"a replay of {plan.pipeline} died after it had written some of its tables, and the steps have changed "
                "since.",
                where=plan.origin,
                fix="put the steps back and replay; then change them.",
            )
        commit = landed
        if landed is None:
            good, moved = (payloads or Payloads(plan, self.spark)).apply_later_steps(notes.taken())
            notes.store_rejected(moved)
            with sink.stage(state.batch, Built(good)) as staged:
                commit = sink.commit(staged)
        self._finish(ledger, state, notes, lease)
        done = replace(
            self._result(state),
            taken=notes.taken().count(),
            moved=notes.rejected().count(),
            snapshot=commit.snapshot if commit is not None else None,
            resumed=landed is not None,
        )
        notes.clear()
        return done

    def _table(self, checkpoint: Checkpoint) -> JavaTable:
        table = tables.load_table(self.spark, self.quarantine)
        if table is None:
            context = SinkContext(plan=self.plan, spark=self.spark, checkpoint=checkpoint)
            QuarantineSink(context, self.quarantine).refuse_gone()
            raise NotFound(
                f"there is no table {self.quarantine.text} yet: {self.plan.pipeline} has set no rows aside.",
                where=self.plan.declared.sink.origin,
            )
        return table

    def _commit_in(self, sink: Sink, state: State) -> Commit | None:
        outcome = sink.find(state.batch)
        return outcome.commit if isinstance(outcome, Found) else None

    def _result(self, state: State) -> Replayed:
        plan = self.plan
        return Replayed(
            pipeline=plan.pipeline,
            target=plan.write.table.text,
            quarantine=self.quarantine.text,
            stayed=state.stayed,
            of_sources=self._of_sources,
            waiting=self._waiting,
        )

    def _number(self, ledger: Ledger) -> int:
        """The number of the next replay, by the quarantine's record of finished replays."""
        record = ledger.load()
        if record is None or record.checkpoint != ledger.checkpoint:
            record = Record(checkpoint=ledger.checkpoint)
            ledger.claim(record)
        return record.batch + 1

    def _new_state(self, ledger: Ledger, table: JavaTable, number: int) -> State:
        table.refresh()
        head = table.currentSnapshot()
        snapshot = int(head.snapshotId()) if head is not None else None
        position = {"sources": [{"source": self.quarantine.text, "uuid": str(table.uuid()), "to": snapshot}]}
        return State(pipeline=ledger.pipeline, number=number, position=position, steps=self.plan.fingerprint, stayed=0)

    def _begin(
        self, sink: Sink, notes: Notes, payloads: Payloads, new: State, checks: ReplayChecks, *, claimed: bool
    ) -> State:
        """Stores the rows that now pass the step that rejected them, and claims the target unless `claimed`."""
        notes.clear()
        rows = self._rows(new)
        if rows is None:
            return new
        if (unfinished := checks.unfinished_batch_condition()) is not None:
            self._waiting = rows.where(unfinished).count()
            rows = rows.where(f"NOT ({unfinished})")
        notes.store_taken(payloads.passing(rows))
        taken = notes.taken().count()
        state = replace(new, stayed=rows.count() - taken)
        if not taken:
            notes.clear()
            return state
        if not claimed and isinstance(sink, TableSink):
            self._claim(sink, new)
        notes.begin(state)
        return state

    def _rows(self, new: State) -> DataFrame | None:
        """The pipeline's rows in the quarantine that may be replayed; None if there are none."""
        snapshot = new.position["sources"][0]["to"]
        if snapshot is None:
            return None
        rows = self.spark.read.option("versionAsOf", snapshot).table(self.quarantine.sql).select(*NAMES)
        rows = rows.where(F.col("pipeline").isin(list(self.plan.write.pipeline_names)))
        counts: dict[str, int] = dict(rows.groupBy("step").count().collect())
        texts = sorted(text for text in counts if not text.endswith(SOURCE_SUFFIXES))
        if self.step is None:
            self._of_sources = sum(count for text, count in counts.items() if text.endswith(SOURCE_SUFFIXES))
            return rows.where(F.col("step").isin(texts)) if texts else None
        chosen = [text for text in texts if (self.step in text if self.step else not text)]
        if not chosen and self.step and any(self.step in text for text in counts if text.endswith(SOURCE_SUFFIXES)):
            raise InputError(
                f"rows that a source of {self.plan.pipeline} has set aside are not replayed: no step rejected them.",
                fix="repair them where they come from, so that they are read again; `helios quarantine clear "
                f"{self.quarantine.name_in_catalog}` then deletes them here.",
            )
        if not chosen:
            by = f"by a step with {self.step!r} in it" if self.step else "for a null key or route"
            raise NotFound(
                f"no rows of {self.plan.pipeline} in {self.quarantine.text} were set aside {by}. "
                f"{near_miss(self.step, [text or '(null keys and routes)' for text in texts])}"
            )
        return rows.where(F.col("step").isin(chosen))

    def _claim(self, sink: TableSink, new: State) -> None:
        ledger = sink.ledger
        record = ledger.load()
        if record is not None and record.checkpoint == ledger.checkpoint and record.batch >= new.number:
            raise LedgerError(
                f"{sink.name.text} holds replay {record.batch} of {self.plan.pipeline}, whose rows are still in "
                f"{self.quarantine.text}: the note of these rows, in the checkpoint folder, is lost.",
                where=self.plan.origin,
                fix=f"delete from {self.quarantine.text} the rows that snapshot {record.snapshot} of "
                f"{sink.name.text} added, and then remove the table property {ledger.key} of {sink.name.text}.",
            )
        # Earlier replays are finished. The last one's snapshot stays in the record, to detect a rollback of the target.
        claim = Record(checkpoint=ledger.checkpoint, batch=new.number - 1, steps=ledger.steps, audited=True)
        if record is not None:
            claim = replace(claim, snapshot=record.snapshot, sequence=record.sequence)
        ledger.claim(claim)

    def _finish(self, ledger: Ledger, state: State, notes: Notes, lease: Lease) -> None:
        """Removes the taken rows from the quarantine and adds the rows that now fail, in one commit and only once."""
        if ledger.find(state.batch) is not None:
            return
        same_row = " AND ".join(f"t.{name} <=> s.{name}" for name in NAMES)
        text = f"MERGE INTO target t USING batch s ON {same_row} WHEN MATCHED THEN DELETE"
        moved = notes.rejected()
        all_names = F.array("pipeline", *map(F.lit, self.plan.write.pipeline_names))  # also the names before a rename
        taken = notes.taken().withColumn("pipeline", F.explode(all_names)).distinct()
        returning = moved.withColumns(
            {
                "pipeline": F.lit(self.plan.pipeline),
                "batch": F.lit(None).cast("bigint"),  # unknown for the new payload
                "position": F.lit(json.dumps(state.position)),
                "at": F.current_timestamp(),
            }
        ).select(*NAMES)
        has_rejected = not moved.isEmpty()

        def write(pending: Transaction) -> None:
            pending.sql(text, taken)
            if has_rejected:
                pending.append(returning)

        options = CommitOptions(
            verify=lease.verify, retry=self.plan.write.sink.retry_policy, properties=SNAPSHOT_ISOLATION
        )
        if ledger.commit(self.spark, write, state.batch, options) is None:
            # Someone has deleted the rows by hand, so only the record is written.
            ledger.claim(Record(checkpoint=ledger.checkpoint, batch=state.number, position=state.position))

    # the target

    def _sink(self, ledger: Ledger, lease: Lease, checkpoint: Checkpoint, notes: Notes) -> TableSink | RoutedSink:
        """The sink of the pipeline's target, under the replay's name."""
        plan = self.plan
        replay_plan = replace(
            plan,
            pipeline=ledger.pipeline,
            was=None,
            path=ReadPath.RANGES,  # each replay has its own number, as the batches of a streaming pipeline have
            write=replace(plan.write, quarantine=None),
        )
        context = SinkContext(
            plan=replay_plan,
            spark=self.spark,
            checkpoint=notes.checkpoint,
            checkpoint_id=ledger.checkpoint,
            lease=lease,
            is_replay=True,
        )
        if plan.write.sink.routing is not None:
            return ReplayRoutedSink(context, lambda sink: self._with_upsert_state(sink, checkpoint))
        table = tables.load_table(self.spark, plan.write.table)
        if table is None:
            raise NotFound(
                f"table {plan.write.table.text} does not exist.",
                where=plan.declared.sink.origin,
                fix="run the pipeline first, which creates it.",
            )
        sink = SINGLE_TABLE_SINKS[plan.write.sink.target_kind](
            context, plan.write.table, table, plan.write.sink.branch_name
        )
        sink = self._with_upsert_state(sink, checkpoint)
        record_applied_batches(sink.ledger, (ledger.pipeline,))  # a batch may be published despite its failed audit
        return sink

    def _with_upsert_state(self, sink: TableSink, checkpoint: Checkpoint) -> TableSink:
        loaded = [Ledger(sink.table, name, "", "", sink.branch).load() for name in self.plan.write.pipeline_names]
        records = [record for record in loaded if record is not None]
        keys_folder = next((record.keys for record in records), None)
        sink.context = replace(sink.context, keys_folder=keys_folder)
        sink.shared_keys = SharedKeys(sink.context, sink.name, sink.branch)
        state = replace(sink.context, checkpoint=checkpoint).upsert_state(sink.name, sink.branch)
        for record in records:
            if record.aside:  # the batch was discarded
                state.forget(record.batch)
        # A batch that changed nothing is not in the table's record, but in Spark's log.
        last = max([-1, *checkpoint.batches("commits"), *(record.batch for record in records)])
        sink.upsert_state = ReplayedUpsertState(state, sink.ledger.checkpoint, last)
        return sink
