"""A rehearsal: runs the batches of a pipeline's last commits with its current script, and compares the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.model.modes import VALID_FROM
from helios.plan.changed import differences
from helios.plan.checks.rehearsal import rehearsal_notes
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import tables
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.rehearse.again import newly_joined, offset_log
from helios.spark.rehearse.attempt import Attempt, AttemptResult, UnreadableCommit, rejected_by_step
from helios.spark.rehearse.compare import Differences, Side, compare
from helios.spark.rehearse.report import Counts, Rehearsed, RehearsedCommit, Rejects
from helios.spark.sinks.stored_records import known_records
from helios.table.commits import Commit
from helios.table.refs import REPLAY
from helios.table.rehearsal import CommittedBatch, History, Rerun, reruns

PARTS = ("step", "source", "mode", "path")
"""The parts of a plan on which its rows depend."""


@dataclass(kw_only=True)
class Rehearsal:
    """A rehearsal of the last commits of a pipeline.

    Attributes:
        plan: The pipeline, as the script declares it now.
        history: All batches of the pipeline in its target.
        commits: The commits to rehearse, oldest first.
        keys: The columns that pair rows, if the mode has no keys of its own.
        max_rows: The limit of rows that are written and compared; the commit that reaches the limit is the last one.
        samples: How many rows of each kind the result shows.
        folder: The folder for temporary files; None for the system's temporary folder.
        unread: The reason why batches cannot be read again, by the index of their commit.
    """

    plan: Plan
    spark: SparkSession
    history: History
    commits: Sequence[CommittedBatch]
    keys: Sequence[str] = ()
    max_rows: int = 1_000_000
    samples: int = 10
    folder: Path | None = None
    unread: dict[int, str] = field(default_factory=dict)

    def run(self) -> Rehearsed:
        """Runs the rehearsal, which writes only into a temporary folder.

        Raises:
            HeliosError: The pipeline cannot be rehearsed, or none of its commits can be read again.
        """
        log = offset_log(Checkpoint(self.spark, self.plan.checkpoint))
        batches, self.unread = reruns(self.commits, log)
        if self._has_later_commits():
            batches = [rerun for rerun in batches if rerun.commit_index < len(self.commits)]
        first = 0
        while True:
            first = self._first_readable(first, batches)
            attempt = self._attempt(first, batches)
            try:
                with attempt.run() as result:
                    unread = {**self.unread, **result.unread}
                    if all(index in unread for index in range(len(self.commits))):
                        raise self._nothing_readable(unread)
                    return self._report(attempt, result)
            except UnreadableCommit as problem:
                self.unread[problem.index] = problem.why
                if problem.index >= len(self.commits):  # batches after the last commit
                    batches = [rerun for rerun in batches if rerun.commit_index < len(self.commits)]
                else:
                    first = problem.index + 1

    def _attempt(self, first: int, batches: Sequence[Rerun]) -> Attempt:
        return Attempt(
            plan=self.plan,
            spark=self.spark,
            commits=self.commits,
            reruns=batches,
            first=first,
            max_rows=self.max_rows,
            folder=self.folder,
        )

    def _has_later_commits(self) -> bool:
        """True if the pipeline has committed since, so that later batches in its offset log may have written rows."""
        table = tables.load_table(self.spark, self.plan.write.table)
        known = known_records(table) if table is not None else {}
        names = [name for name in self.plan.write.pipeline_names if name in known]
        newest = self.commits[-1]
        return not names or (known[names[0]].checkpoint, known[names[0]].batch) != (newest.checkpoint, newest.batch)

    def _first_readable(self, first: int, batches: Sequence[Rerun]) -> int:
        """The index of the commit at which the rehearsal starts.

        If the mode only adds rows, at least one commit from there on must be readable; otherwise, all of them.
        """
        readable = {rerun.commit_index for rerun in batches} - self.unread.keys()
        appends = self._attempt(first, batches).appends
        while first < len(self.commits):
            later = range(first, len(self.commits))
            commit = self.commits[first]
            if not appends and not commit.parent_is_known:
                self.unread[first] = "the snapshot before it has expired"
            elif (any if appends else all)(index in readable for index in later):
                return first
            first += 1
        raise self._nothing_readable(self.unread)

    def _nothing_readable(self, unread: Mapping[int, str]) -> InputError:
        why = "; ".join(dict.fromkeys(unread.values())) or "its commits have expired"
        return InputError(
            f"none of these commits of {self.plan.pipeline} can be read again: {why}.",
            where=self.plan.origin,
            fix="test the script with helios.testing; to rehearse later changes, keep snapshots and files for longer.",
        )

    # the result

    def _report(self, attempt: Attempt, result: AttemptResult) -> Rehearsed:
        columns, lines = self._columns(result)
        keys = self._keys(columns)
        complete = [index for index in range(len(self.commits)) if result.is_complete(index)]
        index_of = {snapshot: index for index in complete for snapshot in self.commits[index].snapshots}
        real = Side(
            self.plan.write.table,
            result.real,
            self.commits[complete[0]].parent if complete else None,
            self.commits[complete[-1]].snapshots[-1] if complete else None,
            index_of,
        )
        rehearsed = Side(result.plan.write.table, result.table, result.base, _newest(result), result.index_of)
        with scan_task_scope():
            compared = compare(
                self.spark, real, rehearsed, columns, keys, appends=attempt.appends, samples=self.samples
            )
        return Rehearsed(
            pipeline=self.plan.pipeline,
            target=self.plan.write.table.text,
            mode=self.plan.write.mode.text(),
            keys=tuple(keys),
            commits=tuple(self._commits(attempt, result, compared)),
            differs=compared.total,
            columns=tuple(lines),
            rejects=tuple(self._rejects(result, complete)),
            added=compared.added,
            missing=compared.missing,
            changed=compared.changed,
            steps=tuple(self._steps()),
            notes=tuple(dict.fromkeys([*self._notes(attempt, result), *result.notes])),
        )

    def _keys(self, columns: Sequence[str]) -> list[str]:
        """The columns that pair rows; empty without keys, or if a key of the mode is not compared."""
        mode = self.plan.write.mode
        known = {name.lower(): name for name in columns}
        mode_keys = [*mode.keys, *([VALID_FROM] if VALID_FROM in mode.added_columns else [])]
        keys = mode_keys or list(self.keys)
        not_compared = [name for name in keys if name.lower() not in known]
        if not_compared and not mode_keys:
            raise InputError(
                f"--key {not_compared[0]} is not a column that both {self.plan.write.table.text} and the script have.",
                fix=f"name one of {', '.join(columns)}.",
            )
        return [known[name.lower()] for name in keys] if not not_compared else []

    def _columns(self, result: AttemptResult) -> tuple[list[str], list[str]]:
        """The columns to compare, and a line for each column that the current script adds, drops or retypes."""
        result.table.refresh()
        before = {field.name: field.dataType.simpleString() for field in tables.spark_schema(self.spark, result.real)}
        after = {field.name: field.dataType.simpleString() for field in tables.spark_schema(self.spark, result.table)}
        last_plan = self.commits[-1].commit.plan
        schema = last_plan.plan.get("schema") if last_plan is not None else None
        written = {str(column["name"]).lower() for column in schema} if schema else {name.lower() for name in before}
        script_columns = result.columns
        gone = [name for name in before if script_columns is not None and name.lower() not in script_columns]
        lines = [f"- {name} {before[name]} (null in later rows)" for name in gone if name.lower() in written]
        for name, kind in after.items():
            if name not in before:
                lines.append(f"+ {name} {kind}")
            elif before[name] != kind:
                lines += [f"- {name} {before[name]}", f"+ {name} {kind}"]
        return [name for name in before if name in after and name not in gone], lines

    def _commits(self, attempt: Attempt, result: AttemptResult, compared: Differences) -> Iterator[RehearsedCommit]:
        for index, commit in enumerate(self.commits):
            unread = self.unread.get(index) or result.unread.get(index, "")
            if not unread and index < attempt.first:
                unread = "it comes before a commit that cannot be read again"
            elif not unread and index not in result.rows and index not in result.failed:
                unread = self._why_left_out(attempt, result)
            yield RehearsedCommit(
                snapshot=commit.snapshots[-1],
                committed=commit.committed,
                batch=commit.batch,
                before=commit.rows,
                now=result.rows.get(index, 0),
                differs=compared.by_commit.get(index, Counts()),
                unread=unread,
                failed=result.failed.get(index, ""),
            )
        after = len(self.commits)
        unread = self.unread.get(after) or result.unread.get(after, "")
        if after in result.rows or after in result.failed or unread:
            yield RehearsedCommit(
                snapshot=None,
                committed=None,
                batch=None,
                now=result.rows.get(after, 0),
                differs=compared.by_commit.get(after, Counts()),
                unread=unread,
                failed=result.failed.get(after, ""),
            )

    def _why_left_out(self, attempt: Attempt, result: AttemptResult) -> str:
        if result.failed and not attempt.appends:  # a mode that only adds rows goes on after a failed commit
            return "it comes after a commit on which the script fails"
        return f"--rows {self.max_rows:,} was reached"

    def _rejects(self, result: AttemptResult, rehearsed: Sequence[int]) -> Iterator[Rejects]:
        """Yields the counts of rejected rows, by expectation."""
        now = rejected_by_step(result, self.spark)
        after = [len(self.commits)] if result.is_complete(len(self.commits)) else []
        before = self._rejected_before([*rehearsed, *after])
        for step in dict.fromkeys((*(before or {}), *now)):
            yield Rejects(step=step, before=before.get(step, 0) if before is not None else None, now=now.get(step, 0))
        dropped = sum(result.rejected.get(index, 0) for index in (*rehearsed, *after)) - sum(now.values())
        if dropped > 0:
            yield Rejects(step="dropped", before=None, now=dropped)

    def _rejected_before(self, rehearsed: Sequence[int]) -> Mapping[str, int] | None:
        """The number of rows of these commits in the quarantine, by expectation; None if unknown."""
        name = self.plan.write.quarantine
        # The quarantine of a batch pipeline numbers its batches separately.
        if name is None or not self.plan.streaming or self._replays():
            return None
        if tables.load_table(self.spark, name) is None:
            return {}
        rows = self.spark.table(name.sql)
        own = rows.where(rows["pipeline"].isin(list(self.plan.write.pipeline_names)))
        # All rejected rows of a batch have the same time.
        groups = own.groupBy("batch", F.col("at").cast("double").alias("at"), "step", "reason").count().collect()
        counts: dict[str, int] = {}
        for batch, at, step, reason, count in groups:
            if any(self._rejected_by(index, batch, at) for index in rehearsed):
                counts[step or reason] = counts.get(step or reason, 0) + count
        return counts

    def _rejected_by(self, index: int, batch: int, at: float) -> bool:
        """True if rows that a batch rejected at a time belong to the commit of an index.

        The number of the batch is not enough, since each checkpoint numbers its batches from 0.
        """
        first = self.history.batches.index(self.commits[0])
        before = self.history.batches[first + index - 1] if first + index else None
        if before is not None and at <= before.committed.timestamp():
            return False
        if index == len(self.commits):
            return batch > self.commits[-1].batch
        commit = self.commits[index]
        return commit.previous_batch < batch <= commit.batch and at <= commit.committed.timestamp()

    def _replays(self) -> bool:
        """True if rejected rows were replayed since; they are then no longer in the quarantine."""
        names = {name + REPLAY for name in self.plan.write.pipeline_names}
        return any(other.pipeline in names for other in self.history.others_since(self.commits[0].snapshots[0]))

    def _steps(self) -> Iterator[str]:
        """Yields the differences from the plan of the last commit; each new step has its line in the script."""
        last_plan = self.commits[-1].commit.plan
        if last_plan is None:
            return
        origins = {f"+ {step.text()}": str(step.origin) for step in self.plan.stream.steps}
        origins[f"+ {self.plan.write.mode.text()}"] = str(self.plan.write.sink.origin)
        for change in differences(last_plan, self.plan):
            if change.part in PARTS:
                yield from (f"{line}  ({origins[line]})" if line in origins else line for line in change.lines)

    def _notes(self, attempt: Attempt, result: AttemptResult) -> Iterator[str]:
        yield from rehearsal_notes(self.plan)
        for name in newly_joined(self.plan, self.commits):
            yield f"{name} was not joined at that time, and is read as it is now"
        if self.commits[-1].commit.plan is None:
            yield "the steps of the last commit are unknown: no checkpoint has their plan"
        if self.history.refilled and self.commits[0] is self.history.batches[0]:
            yield "commits before the last full refresh are left out"
        if self._replays():
            yield "rejected rows were replayed since: how many there were at the time is unknown"
        others = self.history.others_since(self.commits[attempt.first].snapshots[0])
        yield from _notes_on_others(others, self.history.names, appends=attempt.appends)
        if result.first_left_out is not None and (attempt.appends or not result.failed):
            yield f"--rows {self.max_rows:,} was reached: later commits are not rehearsed"


def _notes_on_others(others: Sequence[Commit], names: Sequence[str], *, appends: bool) -> Iterator[str]:
    """Yields notes on the commits that a rehearsal does not repeat: of other writers, and of the pipeline's backfills.

    Args:
        others: The commits since the first one that is rehearsed.
        appends: Whether the pipeline appends, so that only removed rows matter.
    """
    relevant = [commit for commit in others if commit.removed or not appends]
    backfills = [commit for commit in relevant if commit.repairs in names]
    writers = sorted({commit.pipeline or "another writer" for commit in relevant if commit.repairs not in names})
    if backfills:
        newest = f"snapshot {backfills[-1].snapshot}" + (" and earlier ones" if len(backfills) > 1 else "")
        effect = (
            "the rows that each commit added are compared, and not the rows of the backfill"
            if appends
            else "what it changed is left out, and batches that changed the same rows may differ"
        )
        yield f"a backfill of the pipeline has replaced rows since ({newest}): {effect}"
    if writers and appends:
        yield (
            f"others have removed rows since ({', '.join(writers)}): the rows that each commit added are compared, and "
            "not the rows that remain"
        )
    elif writers:
        count = len(relevant) - len(backfills)
        commits = "1 later commit is" if count == 1 else f"{count} later commits are"
        yield (
            f"{commits} of others ({', '.join(writers)}): what they changed is left out, and batches "
            "that changed the same rows may differ"
        )


def _newest(result: AttemptResult) -> int | None:
    """The current snapshot of the table that the rehearsal has written, in its temporary lake."""
    newest = result.table.currentSnapshot()
    return int(newest.snapshotId()) if newest is not None else None
