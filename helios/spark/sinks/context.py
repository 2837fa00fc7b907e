"""The context that all sinks of one run share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.plan.checks.merge import inserts_only
from helios.plan.nodes import Plan
from helios.plan.other_upserts import upsert_terms
from helios.plan.properties import SERIALIZABLE, write_overrides
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.landings import Landings
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.repeat import Repeat
from helios.spark.checkpoint.upsert_state import UpsertState, locate_state
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.observer import Observer, SilentObserver
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import CommitOptions
from helios.spark.sinks.rollbacks import RollbackGuard, replay_of
from helios.table.appended import WhyNotRowByRow
from helios.table.refs import LEDGER


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """The context that the sinks of one run share.

    Attributes:
        checkpoint: The pipeline's checkpoint, whose id is `checkpoint_id`.
        lease: The lease on the checkpoint, verified before each commit.
        observer: Receives commits and counts of rejected rows.
        again: The batch that `--again` appends a second time, and the number that it has in each table; None without
            `--again`.
        why_not_row_by_row: Returns why the steps do not work row by row, so that two input ranges that are read
            together may give other rows than the same ranges read one by one; None if they do.
        is_replay: Whether the run replays quarantined rows. A replay has a ledger name of its own.
        former_quarantines: The quarantine tables that earlier versions of the script named. They may have rows of the
            pipeline.
        keys_folder: The folder of the pipeline's upsert state; None if it is in the checkpoint, or if there is none.
    """

    plan: Plan
    spark: SparkSession
    checkpoint: Checkpoint
    checkpoint_id: str = ""
    lease: Lease | None = None
    observer: Observer = field(default_factory=SilentObserver)
    again: Repeat | None = None
    why_not_row_by_row: WhyNotRowByRow = lambda: "they were not checked"
    is_replay: bool = False
    former_quarantines: Sequence[TableName] = ()
    keys_folder: str | None = None

    def verify(self) -> None:
        """Raises if the lease was lost."""
        if self.lease is not None:
            self.lease.verify()

    @property
    def restart_hint(self) -> str:
        """Advice when one of several tables cannot continue."""
        mirrors = self.plan.write.sink.mirrors
        return "mirror into another namespace" if mirrors else "route into tables of another name"

    @property
    def ledger_key(self) -> str:
        """The name of the table property that holds the pipeline's record in a target."""
        return LEDGER + self.plan.pipeline

    def ledger(self, table: JavaTable, branch: str | None = None, name: TableName | None = None) -> Ledger:
        """The pipeline's ledger in a table.

        Args:
            branch: The branch that is written; None for main.
            name: The table's name, if the ledger must also note its commits in the checkpoint.
        """
        guard = self.guard(table, name, branch) if name is not None else None
        terms, steps = upsert_terms(self.plan), self.plan.fingerprint
        keys_folder = self.keys_folder if not self.is_replay else None
        return Ledger(
            table,
            self.plan.pipeline,
            self.checkpoint_id,
            steps,
            branch,
            guard=guard,
            upserts=terms,
            keys_folder=keys_folder,
        )

    def guard(
        self,
        table: JavaTable,
        name: TableName,
        branch: str | None = None,
        rollback_fix: str | None = None,
        replay_fix: str | None = None,
    ) -> RollbackGuard:
        """The guard against rollbacks. It knows the last batch from the table's record and from the checkpoint.

        Args:
            branch: The branch that is written; None for main.
            rollback_fix: The advice for a table that has lost rows, in place of `--new-checkpoint`.
            replay_fix: The advice for a table that has lost a replay; by default, `rollback_fix`.
        """
        spark = self.spark

        def has_files(head: int, added_by: int) -> bool:
            entries = spark.read.option("versionAsOf", head).table(f"{name.sql}.entries")
            return not entries.where(f"snapshot_id = {added_by}").isEmpty()

        # Replays are noted only in the table's ledger, not in the checkpoint, because a new checkpoint may continue
        # without the replays.
        landings = self.landings(name, branch) if not self.is_replay else None
        if rollback_fix is None and self.plan.write.sink.many_tables:
            rollback_fix = self.restart_hint  # many tables have no common position at which they could resume
        return RollbackGuard(
            table,
            self.plan.pipeline,
            self.checkpoint_id,
            landings,
            has_files,
            rollback_fix=rollback_fix,
            replay_fix=replay_fix or rollback_fix,
            lenient=self.is_replay,
        )

    def landings(self, name: TableName, branch: str | None = None) -> Landings:
        """The checkpoint's note of the last batch in a table, or in a branch of it."""
        return Landings(self.checkpoint, self.checkpoint_id, f"{name.text}@{branch}" if branch else name.text)

    def options(self) -> CommitOptions:
        plan, sink = self.plan, self.plan.write.iceberg
        traits, merge = sink.mode.traits, sink.mode.merge
        return CommitOptions(
            stamps=dict(sink.summary_entries),
            sources=[{"kind": r.kind, "name": r.name, "uuid": r.uuid} for r in plan.reads],
            properties={**SERIALIZABLE, **write_overrides(sink, plan.write.file_format)},
            retry=sink.retry_policy,
            # A batch pipeline or a replay takes the number of its batch from the record, and stores the keys of that
            # batch under this number. So even a run that changes no file must increase the number in the record.
            commits_empty=sink.mode.upsert is not None and (self.is_replay or not plan.streaming),
            exclusive=traits.replaces_foreign_rows or (merge is not None and inserts_only(merge)),
            retries_conflicts=not traits.replaces_foreign_rows,
            verify=self.verify,
            observer=self.observer,
        )

    @property
    def remember_seconds(self) -> float:
        """The time for which the pipeline remembers deletes; 0 if it does not upsert."""
        upsert = self.plan.write.mode.upsert
        return upsert.tombstones if upsert is not None else 0.0

    def upsert_state(self, name: TableName, branch: str | None) -> UpsertState:
        """The upsert state of a table, or of one branch of it."""
        target = f"{name.text}@{branch}" if branch else name.text
        files, folder = locate_state(self.spark, self.checkpoint, target, self.keys_folder)
        has_replay = partial(self.has_replay, name, self.plan.write.pipeline_names)
        return UpsertState(files, folder, self.remember_seconds, has_replay)

    def has_replay(self, name: TableName, pipelines: Iterable[str], quarantine: str, number: int) -> bool:
        """True if a table has a replay of a pipeline's quarantine, or a later one. Discarded replays do not count.

        Args:
            pipelines: The pipeline's name, and its former names.
            quarantine: The UUID of the quarantine.
            number: The number of the replay.
        """
        table = tables.load_table(self.spark, name)
        replays = [replay_of(table, pipeline) for pipeline in pipelines] if table is not None else []
        records = [replay.record for replay in replays if replay is not None]
        return any(r.checkpoint == quarantine and r.batch >= number and not r.aside for r in records)
