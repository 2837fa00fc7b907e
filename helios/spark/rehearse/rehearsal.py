"""A rehearsal: what the batches of a pipeline's last commits would have written, by its script as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.model.modes import VALID_FROM
from helios.plan.changed import differences
from helios.plan.checks.rehearsal import unrepeatable
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import tables
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.rehearse.again import newly_joined, offset_log
from helios.spark.rehearse.attempt import Attempt, CannotRead, Done, kept_out
from helios.spark.rehearse.compare import Differences, Side, compare
from helios.spark.rehearse.report import Counts, Rehearsed, RehearsedCommit, Rejects
from helios.spark.sinks.stored_records import known_records
from helios.table.commits import Commit
from helios.table.refs import REPLAY
from helios.table.rehearsal import History, Made, Rerun, reruns

PARTS = ("step", "source", "mode", "path")
"""The parts of a plan that decide which rows come out."""


@dataclass(kw_only=True)
class Rehearsal:
    """A rehearsal of the last commits of a pipeline.

    Attributes:
        plan: The pipeline, as the script declares it now.
        spark: The session.
        history: All batches of the pipeline in its target.
        made: Those that are rehearsed, oldest first.
        keys: The columns that pair rows of a table that is appended to.
        most: About how many rows are written and compared.
        some: How many rows of each kind the result has.
        folder: Where temporary files are; None for the machine's folder of these.
        unread: Why batches cannot be read again, by their commit.
    """

    plan: Plan
    spark: SparkSession
    history: History
    made: Sequence[Made]
    keys: Sequence[str] = ()
    most: int = 1_000_000
    some: int = 10
    folder: Path | None = None
    unread: dict[int, str] = field(default_factory=dict)

    def run(self) -> Rehearsed:
        """Runs it. Nothing but a temporary folder is written.

        Raises:
            HeliosError: It cannot be rehearsed, or nothing of it can be read again.
        """
        log = offset_log(Checkpoint(self.spark, self.plan.checkpoint))
        again, self.unread = reruns(self.made, log)
        if self._goes_on():
            again = [one for one in again if one.owner < len(self.made)]
        first = 0
        while True:
            first = self._begins(first, again)
            attempt = self._attempt(first, again)
            try:
                with attempt.run() as done:
                    unread = {**self.unread, **done.unread}
                    if all(index in unread for index in range(len(self.made))):
                        raise self._nothing_left(unread)
                    return self._result(attempt, done)
            except CannotRead as problem:
                self.unread[problem.index] = problem.why
                if problem.index >= len(self.made):  # batches after the last commit
                    again = [one for one in again if one.owner < len(self.made)]
                else:
                    first = problem.index + 1

    def _attempt(self, first: int, again: Sequence[Rerun]) -> Attempt:
        return Attempt(
            plan=self.plan,
            spark=self.spark,
            commits=self.made,
            reruns=again,
            first=first,
            most=self.most,
            folder=self.folder,
        )

    def _goes_on(self) -> bool:
        """True if the pipeline has committed since: what its checkpoint has beyond may have written rows."""
        table = tables.load_table(self.spark, self.plan.write.table)
        known = known_records(table) if table is not None else {}
        names = [name for name in self.plan.write.pipelines if name in known]
        newest = self.made[-1]
        return not names or (known[names[0]].checkpoint, known[names[0]].batch) != (newest.checkpoint, newest.batch)

    def _begins(self, first: int, again: Sequence[Rerun]) -> int:
        """The first commit of which, and of all commits after it, the batches may be read again.

        Raises:
            InputError: There is none.
        """
        readable = {one.owner for one in again} - self.unread.keys()
        appends = self._attempt(first, again).appends
        while first < len(self.made):
            later = range(first, len(self.made))
            one = self.made[first]
            if not appends and not one.base:
                self.unread[first] = f"snapshot {one.parent}, the state before it, has expired"
            elif (any if appends else all)(index in readable for index in later):
                return first
            first += 1
        raise self._nothing_left(self.unread)

    def _nothing_left(self, unread: Mapping[int, str]) -> InputError:
        """The error where no commit can be read again, with the reasons."""
        why = "; ".join(dict.fromkeys(unread.values())) or "its commits have expired"
        return InputError(
            f"nothing of {self.plan.pipeline} can be read once more: {why}.",
            where=self.plan.origin,
            fix="test the script with helios.testing; and keep snapshots and files longer to rehearse changes.",
        )

    # the result

    def _result(self, attempt: Attempt, done: Done) -> Rehearsed:
        columns, lines = self._columns(done)
        keys = self._keys(columns)
        rehearsed = [index for index in range(len(self.made)) if done.whole(index)]
        index_of = {snapshot: index for index in rehearsed for snapshot in self.made[index].snapshots}
        theirs = Side(
            self.plan.write.table,
            done.real,
            self.made[rehearsed[0]].parent if rehearsed else None,
            self.made[rehearsed[-1]].snapshots[-1] if rehearsed else None,
            index_of,
        )
        ours = Side(done.plan.write.table, done.table, done.begins, _newest(done), done.index_of)
        with scan_task_scope():
            found = compare(self.spark, theirs, ours, columns, keys, appends=attempt.appends, some=self.some)
        return Rehearsed(
            pipeline=self.plan.pipeline,
            target=self.plan.write.table.text,
            mode=self.plan.write.mode.text(),
            keys=tuple(keys),
            commits=tuple(self._commits(attempt, done, found)),
            differs=found.total,
            columns=tuple(lines),
            rejects=tuple(self._rejects(done, rehearsed)),
            added=found.added,
            missing=found.missing,
            changed=found.changed,
            steps=tuple(self._steps()),
            notes=tuple(dict.fromkeys([*self._notes(attempt, done), *done.notes])),
        )

    def _keys(self, columns: Sequence[str]) -> list[str]:
        """The columns that pair rows.

        Raises:
            InputError: A key that was asked for is not compared.
        """
        mode = self.plan.write.mode
        known = {name.lower(): name for name in columns}
        own = [*mode.keys, *([VALID_FROM] if VALID_FROM in mode.added_columns else [])]
        wanted = own or list(self.keys)
        lacking = [name for name in wanted if name.lower() not in known]
        if lacking and not own:
            raise InputError(
                f"--key {lacking[0]}: {self.plan.write.table.text} has no such column.",
                fix=f"name one of {', '.join(columns)}.",
            )
        return [known[name.lower()] for name in wanted] if not lacking else []

    def _columns(self, done: Done) -> tuple[list[str], list[str]]:
        """The columns that are compared, and how those of the target differ from those that it would have."""
        done.table.refresh()
        before = {field.name: field.dataType.simpleString() for field in tables.spark_schema(self.spark, done.real)}
        after = {field.name: field.dataType.simpleString() for field in tables.spark_schema(self.spark, done.table)}
        kept = self.made[-1].commit.plan
        shown = kept.plan.get("schema") if kept is not None else None
        then = {str(one["name"]).lower() for one in shown} if shown else {name.lower() for name in before}
        now = done.columns
        gone = [name for name in before if now is not None and name.lower() not in now]
        lines = [f"- {name} {before[name]} (null in later rows)" for name in gone if name.lower() in then]
        for name, kind in after.items():
            if name not in before:
                lines.append(f"+ {name} {kind}")
            elif before[name] != kind:
                lines += [f"- {name} {before[name]}", f"+ {name} {kind}"]
        return [name for name in before if name in after and name not in gone], lines

    def _commits(self, attempt: Attempt, done: Done, found: Differences) -> Iterator[RehearsedCommit]:
        for index, one in enumerate(self.made):
            unread = self.unread.get(index) or done.unread.get(index, "")
            if not unread and index < attempt.first:
                unread = "it comes before one that cannot be read again"
            elif not unread and index not in done.rows and index not in done.failed:
                unread = self._left_out(done)
            yield RehearsedCommit(
                snapshot=one.snapshots[-1],
                committed=one.committed,
                batch=one.batch,
                before=one.rows,
                now=done.rows.get(index, 0),
                differs=found.each.get(index, Counts()),
                unread=unread,
                failed=done.failed.get(index, ""),
            )
        after = len(self.made)
        if after in done.rows or after in done.failed or after in self.unread:
            yield RehearsedCommit(
                snapshot=None,
                committed=None,
                batch=None,
                now=done.rows.get(after, 0),
                differs=found.each.get(after, Counts()),
                unread=self.unread.get(after, ""),
                failed=done.failed.get(after, ""),
            )

    def _left_out(self, done: Done) -> str:
        if done.failed:
            return "it comes after one on which the script fails"
        return f"--rows {self.most:,} was reached"

    def _rejects(self, done: Done, rehearsed: Sequence[int]) -> Iterator[Rejects]:
        """The counts of rejected rows, by expectation."""
        now = kept_out(done, self.spark)
        after = [len(self.made)] if done.whole(len(self.made)) else []
        before = self._rejected_before([*rehearsed, *after])
        for step in dict.fromkeys((*(before or {}), *now)):
            yield Rejects(step=step, before=before.get(step, 0) if before is not None else None, now=now.get(step, 0))
        dropped = sum(done.kept_out.get(index, 0) for index in (*rehearsed, *after)) - sum(now.values())
        if dropped > 0:
            yield Rejects(step="dropped", before=None, now=dropped)

    def _rejected_before(self, rehearsed: Sequence[int]) -> Mapping[str, int] | None:
        """The rows of the batches of these commits that the quarantine has, by expectation; None where not known."""
        name = self.plan.write.quarantine
        if name is None or not self.plan.streaming or self._replays():  # a batch pipeline numbers its rejects apart
            return None
        if tables.load_table(self.spark, name) is None:
            return {}
        rows = self.spark.table(name.sql)
        own = rows.where(rows["pipeline"].isin(list(self.plan.write.pipelines)))
        # All rejected rows of a batch have one time.
        known = own.groupBy("batch", F.col("at").cast("double").alias("at"), "step", "reason").count().collect()
        found: dict[str, int] = {}
        for batch, at, step, reason, count in known:
            if any(self._rejected_by(index, batch, at) for index in rehearsed):
                found[step or reason] = found.get(step or reason, 0) + count
        return found

    def _rejected_by(self, index: int, batch: int, at: float) -> bool:
        """Whether rows of this batch and time were rejected on the way to a commit: each checkpoint numbers from 0."""
        begin = self.history.made.index(self.made[0])
        every = self.history.made[: begin + len(self.made)]
        before = every[begin + index - 1] if begin + index else None
        if before is not None and at <= before.committed.timestamp():
            return False
        if index == len(self.made):
            return batch > self.made[-1].batch
        one = self.made[index]
        return one.follows < batch <= one.batch and at <= one.committed.timestamp()

    def _replays(self) -> bool:
        """Whether rejected rows were replayed since: the quarantine no longer has these."""
        names = {name + REPLAY for name in self.plan.write.pipelines}
        return any(other.pipeline in names for other in self.history.since(self.made[0].snapshots[0]))

    def _steps(self) -> Iterator[str]:
        """How the plan differs from that of the last commit, each new step with its line."""
        kept = self.made[-1].commit.plan
        if kept is None:
            return
        lines = {f"+ {step.text()}": str(step.origin) for step in self.plan.stream.steps}
        lines[f"+ {self.plan.write.mode.text()}"] = str(self.plan.write.sink.origin)
        for change in differences(kept, self.plan):
            if change.part in PARTS:
                yield from (f"{line}  ({lines[line]})" if line in lines else line for line in change.lines)

    def _notes(self, attempt: Attempt, done: Done) -> Iterator[str]:
        yield from unrepeatable(self.plan)
        for name in newly_joined(self.plan, self.made):
            yield f"{name} was not joined then, and is read as it is now"
        if self.made[-1].commit.plan is None:
            yield "the steps of the last commit are not known: no checkpoint has their plan"
        if self.history.refilled and self.made[0] is self.history.made[0]:
            yield "commits before the last full refresh are left out"
        if self._replays():
            yield "rejected rows were replayed since: how many there were at the time is not known"
        others = self.history.since(self.made[attempt.first].snapshots[0])
        yield from _of_others(others, self.history.names, appends=attempt.appends)
        if done.left is not None and not done.failed:
            yield f"--rows {self.most:,} was reached: later commits are not rehearsed"


def _of_others(others: Sequence[Commit], names: Sequence[str], *, appends: bool) -> Iterator[str]:
    """What commits beside the batches of a pipeline mean for its rehearsal; its own backfills are named as such.

    Args:
        others: The commits since the first one that is rehearsed.
        names: The names of the pipeline.
        appends: Whether it appends, so that only removed rows matter.
    """
    counted = [one for one in others if one.removed or not appends]
    backfills = [one for one in counted if one.repairs in names]
    writers = sorted({one.pipeline or "another writer" for one in counted if one.repairs not in names})
    if backfills:
        newest = f"snapshot {backfills[-1].snapshot}" + (" and earlier ones" if len(backfills) > 1 else "")
        means = (
            "the rows that each commit added are compared, and not those that replace them"
            if appends
            else "what it changed is left out, and batches that met its rows may differ"
        )
        yield f"a backfill of the pipeline has replaced rows since ({newest}): {means}"
    if writers and appends:
        yield (
            f"others have removed rows since ({', '.join(writers)}): the rows that each commit added are compared, and "
            "not what is left"
        )
    elif writers:
        count = len(counted) - len(backfills)
        commits = "1 commit since is" if count == 1 else f"{count} commits since are"
        yield (
            f"{commits} of others ({', '.join(writers)}): what they changed is left out, and batches "
            "that met their rows may differ"
        )


def _newest(done: Done) -> int | None:
    """The last snapshot of the lake's table."""
    newest = done.table.currentSnapshot()
    return int(newest.snapshotId()) if newest is not None else None
