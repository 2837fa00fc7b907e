"""Exactly-once: what a target remembers of the pipelines that write it.

Every batch is one Iceberg transaction that changes the data, stamps the snapshot's summary, and sets the pipeline's
record in the table's properties. The three land together or not at all, so the record alone proves whether a batch is
there: it survives expiry and compaction and pins no data file. The transaction carries a validation of the ancestry,
which Iceberg runs again inside its own retries (`SnapshotUpdate.validateWith`, as Flink's sink uses it): a held commit
of a dead driver, let go after its replacement committed, is rejected there, whatever the write mode.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from helios.errors import LeaseError, LedgerError, RunError
from helios.model.sink import Retry
from helios.plan.plan import VERSION
from helios.spark.view import Transaction

PREFIX = "helios.ledger."
"""The property `helios.ledger.<pipeline>` of the target holds the pipeline's record."""

CONFLICTS = ("ValidationException", "CommitFailedException")
"""How Iceberg says that others have committed what does not go together with a change."""

ATTEMPT = "helios.attempt"
"""The stamp by which the snapshots of one transaction are known."""

COMPACTION = "replace"
"""The operation of a snapshot that holds the rows of its parent in other files."""

LOOKUP_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0)
"""Pauses before the look-ups of a commit whose outcome is unknown."""


@dataclass(frozen=True)
class Record:
    """The last batch of a pipeline that is in the target; `batch` is -1 before the first.

    Attributes:
        checkpoint: The id of the checkpoint that wrote it.
        batch: The batch's number in that checkpoint.
        position: What the batch read, as in `helios.position`.
        snapshot: The snapshot that added it.
        sequence: A lower bound of that snapshot's sequence number.
        steps: The fingerprint of the pipeline's steps.
    """

    checkpoint: str
    batch: int = -1
    position: Mapping[str, Any] | None = None
    snapshot: int | None = None
    sequence: int = 0
    steps: str = ""

    def as_json(self) -> str:
        return json.dumps({"v": VERSION, **asdict(self)}, separators=(",", ":"))


@dataclass(frozen=True)
class Commit:
    """A batch that is in the target.

    Attributes:
        snapshot: Its snapshot; None when that has expired.
        rows: The rows it wrote, when it was made now.
        files: The data files it added, when it was made now.
        bytes: Their size.
        again: Whether the batch was found there rather than written.
        retries: How often its commit was tried again.
        write_seconds: How long Spark wrote.
        commit_seconds: How long the commit took.
    """

    snapshot: int | None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    again: bool = False
    retries: int = 0
    write_seconds: float = 0.0
    commit_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a batch is committed.

    Attributes:
        stamps: The user's own entries of the snapshot summary.
        sources: The sources as JSON values, for `helios.sources`.
        properties: What the writer follows, whatever the table itself says.
        retry: What is tried again.
        counts_empty: Whether a batch that changes no file is committed, so that it counts.
        yields: Whether a conflict with another writer is tried again; an overwrite would erase what it has not seen.
        before: Called before each try; raises to stop.
        retried: Called for each try after the first.
    """

    stamps: Mapping[str, str] = field(default_factory=dict)
    sources: object = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    counts_empty: bool = False
    yields: bool = True
    before: Callable[[], None] = lambda: None
    retried: Callable[[], None] = lambda: None


class _Ancestry:
    """Rejects a commit onto a history in which this pipeline has committed since the look-up.

    Implements Iceberg's `SnapshotAncestryValidator`; it is given the ancestors to commit onto, newest first.

    Args:
        pipeline: The pipeline's identity.
        checkpoint: The id of its checkpoint.
        head: The newest snapshot at the look-up.
        yields: Whether other writers may have changed rows since.
    """

    def __init__(self, pipeline: str, checkpoint: str, head: int | None, yields: bool) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._head = head
        self._yields = yields
        self._why = ""

    def validate(self, ancestors: Any) -> bool:
        snapshots = ancestors.iterator()
        while snapshots.hasNext():
            snapshot = snapshots.next()
            if snapshot.snapshotId() == self._head:
                return True
            summary = snapshot.summary()
            # A pipeline that was renamed meanwhile still has its checkpoint.
            if summary.get("helios.pipeline") == self._pipeline or summary.get("helios.checkpoint") == self._checkpoint:
                self._why = f"pipeline {self._pipeline} has committed since this batch was looked up"
                return False
            if not self._yields and str(snapshot.operation()) != COMPACTION:
                self._why = f"snapshot {snapshot.snapshotId()} has come since this batch was looked up"
                return False
        self._why = "the history no longer reaches back to where this batch was looked up"
        return self._head is None

    def errorMessage(self) -> str:
        return self._why

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


class _Unchanged:
    """Rejects a commit onto any other snapshot than the one that was looked at."""

    def __init__(self, head: int | None) -> None:
        self._head = head

    def validate(self, ancestors: Any) -> bool:
        snapshots = ancestors.iterator()
        return (snapshots.next().snapshotId() if snapshots.hasNext() else None) == self._head

    def errorMessage(self) -> str:
        return "somebody has written to the table meanwhile"

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


class Ledger:
    """The record of one pipeline in one target table.

    Args:
        table: Iceberg's own table, a `org.apache.iceberg.Table` of the JVM.
        pipeline: The pipeline's identity.
        checkpoint: The id of the checkpoint that drives it.
        steps: The fingerprint of its steps.
        branch: The branch that it writes; None for main.
    """

    def __init__(self, table: Any, pipeline: str, checkpoint: str, steps: str, branch: str | None = None) -> None:
        self.table = table
        self.branch = branch
        self.pipeline = pipeline
        self.checkpoint = checkpoint
        self.steps = steps
        self.key = PREFIX + pipeline
        self._head: Any = None  # the snapshot at which a batch was last looked up

    def head(self) -> Any | None:
        """The newest snapshot of the branch; None for an empty one."""
        return _util().latestSnapshot(self.table, self.branch) if self.branch else self.table.currentSnapshot()

    @property
    def seen(self) -> Any | None:
        """The newest snapshot when a batch was last looked up; None for an empty branch."""
        return self._head

    # the record

    def load(self) -> Record | None:
        """The pipeline's record, from the properties or, where those lost it, from the newest stamp in the ancestry.

        Raises:
            LedgerError: The record is newer than this code, or the history cannot prove that there is none.
        """
        self.table.refresh()
        text = self.table.properties().get(self.key)
        if text is not None:
            return parse(text, self.key, self.table.name())
        return self._newest_stamp()

    def claim(self, record: Record, forget: str | None = None) -> None:
        """Writes a record with no batch: the checkpoint's claim on the target, before its first batch."""
        update = self.table.updateProperties().set(self.key, record.as_json())
        if forget is not None:
            update = update.remove(PREFIX + forget)
        update.commit()

    def empty(self) -> None:
        """Deletes all rows and forgets all batches, in one commit, and claims the table for this checkpoint.

        The table must have been looked at: a commit that came since is not deleted, but makes this one fail.
        """
        head = self.head()
        transaction = self.table.newTransaction()
        delete = transaction.newDelete().deleteFromRowFilter(_always_true())
        if self.branch:
            delete.toBranch(self.branch)
        delete.validateWith(_Unchanged(head.snapshotId() if head is not None else None))
        delete.set("helios.v", str(VERSION)).set("helios.pipeline", self.pipeline).commit()
        transaction.updateProperties().set(
            self.key, Record(checkpoint=self.checkpoint, steps=self.steps).as_json()
        ).commit()
        transaction.commitTransaction()

    def _newest_stamp(self) -> Record | None:
        snapshot = self.head()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get("helios.pipeline") == self.pipeline and summary.get("helios.batch") is not None:
                return Record(
                    checkpoint=summary.get("helios.checkpoint"),
                    batch=int(summary.get("helios.batch")),
                    position=json.loads(summary.get("helios.position")),
                    snapshot=snapshot.snapshotId(),
                    sequence=snapshot.sequenceNumber(),
                    steps=summary.get("helios.steps") or "",
                )
            parent = snapshot.parentId()
            snapshot = self.table.snapshot(parent) if parent is not None else None
        return None

    # looking up a batch

    def find(self, batch: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        """Looks a batch up in the target; None when it is not there.

        Args:
            batch: The batch's number.
            position: What it reads.
            planned: Whether an earlier process may have written it already.

        Raises:
            LedgerError: The target was rolled back, or the checkpoint and the target disagree.
        """
        record = self.load()
        self._head = self.head()
        if record is None:
            if planned:
                raise LedgerError(
                    f"{self.table.name()} has lost the record {self.key}, and its retained history cannot prove that "
                    f"batch {batch} is absent; nothing was written.",
                    fix=f"restore the table property {self.key} from an older metadata file, or fill the target anew "
                    "with `helios run --full-refresh`.",
                )
            return None
        if record.checkpoint != self.checkpoint:
            raise LeaseError(
                f"pipeline {self.pipeline} has been driven from another checkpoint ({record.checkpoint}) since "
                f"this one ({self.checkpoint}) was made; nothing was written.",
                fix="stop one of the two, and give each pipeline one checkpoint.",
            )
        self.refuse_rollback(record)
        if record.batch < batch:
            return None
        same = record.batch == batch and reads(record.position) == reads(position)
        if not same and (record.batch == batch or not planned):
            raise self.behind(record)
        return Commit(snapshot=record.snapshot if record.batch == batch else None, again=True)

    def refuse_rollback(self, record: Record) -> None:
        """Stops when the target no longer holds the last batch that its record names.

        Raises:
            LedgerError: The target was rolled back or replaced.
        """
        if record.snapshot is None:
            return
        head = self.head()
        if self.table.snapshot(record.snapshot) is not None:
            gone = head is None or not _util().isAncestorOf(self.table, head.snapshotId(), record.snapshot)
        else:  # expired: a head that is older than the batch cannot descend from it
            gone = head is None or head.sequenceNumber() < record.sequence
        if gone:
            raise LedgerError(
                f"{self.table.name()} was rolled back or replaced: batch {record.batch} of {self.pipeline} (snapshot "
                f"{record.snapshot}) is no longer in its history; nothing was written.",
                fix="roll the table forward again, or go on from the target's last position, without what was rolled "
                "back, with `helios run --new-checkpoint`.",
            )

    def behind(self, record: Record) -> LedgerError:
        """The refusal of a checkpoint that knows less than its target."""
        return LedgerError(
            f"the checkpoint is behind its target: {self.table.name()} holds batch {record.batch} of {self.pipeline} "
            "with another source position; nothing was written. A checkpoint restored from a backup looks like this.",
            fix="restore the newest checkpoint, or resume at the target's position with `helios run --new-checkpoint`.",
        )

    # committing

    def commit(
        self,
        spark: SparkSession,
        write: Callable[[Transaction], None],
        batch: int,
        position: Mapping[str, Any],
        terms: Terms | None = None,
        *,
        recorded: bool = True,
    ) -> Commit | None:
        """Writes a batch that `find` did not find, atomically with its stamps and its record.

        Args:
            spark: The session of the batch.
            write: Writes the batch into a transaction on the table; called again where a conflict is tried again.
            batch: The batch's number.
            position: What it read.
            terms: How it is committed.
            recorded: Whether the batch then counts as there; one that is staged for an audit does not yet.

        Returns:
            The commit; None when the batch changes nothing.

        Raises:
            LeaseError: Another driver has committed for this pipeline since the look-up.
            RunError: The commit failed, or its outcome stays unknown.
        """
        terms = terms or Terms()
        conflict: Py4JJavaError | None = None
        for tried in range(terms.retry.retries + 1):
            if tried:
                terms.retried()
                time.sleep(terms.retry.backoff * 2 ** (tried - 1))
            terms.before()
            seen = self._head
            pending = self.begin(spark, batch, position, terms)
            began = time.monotonic()
            try:
                write(pending)
            except Py4JJavaError as error:
                if java_class(error) not in CONFLICTS:
                    raise
                conflict = error
                if (found := self.find(batch, position, planned=True)) is not None:
                    return found
                self._refuse_conflict(error, batch, terms, seen)
                continue
            written = time.monotonic()
            snapshot = pending.snapshot
            if snapshot is None:
                return None
            if not terms.counts_empty and not changes(snapshot):
                self.table.io().deleteFile(snapshot.manifestListLocation())
                return None
            made = int(snapshot.snapshotId())
            files = Added(self.table, snapshot)
            try:
                if recorded:
                    pending.record(self.key, self.record_of(batch, position, made).as_json())
                pending.commit()
            except Py4JJavaError as error:
                found = self.look_again(error, batch, position)
                if found is not None and found.snapshot == made:
                    return self._made(made)
                if java_class(error) in CONFLICTS and (found is None or found.snapshot is not None):
                    files.delete()  # of any other failure nobody can tell that they are in no snapshot
                if found is not None:
                    return found
                conflict = error
                self._refuse_conflict(error, batch, terms, seen)
                continue
            done = time.monotonic() - written
            return replace(self._made(made), retries=tried, write_seconds=written - began, commit_seconds=done)
        why = f": {java_message(conflict)}" if conflict is not None else ""
        raise RunError(
            f"batch {batch} of {self.pipeline} conflicted with other writers of {self.table.name()} in each of "
            f"{terms.retry.retries + 1} tries; nothing was written{why}",
            fix="run again when the table is quieter, or allow more tries with .retry(retries=).",
        ) from conflict

    def begin(
        self, spark: SparkSession, batch: int, position: Mapping[str, Any], terms: Terms | None = None
    ) -> Transaction:
        """A transaction on the table as it was when the batch was looked up: its operations are stamped and fenced."""
        terms = terms or Terms()
        summary = {
            **terms.stamps,
            "helios.v": str(VERSION),
            "helios.pipeline": self.pipeline,
            "helios.batch": str(batch),
            "helios.position": json.dumps(position, separators=(",", ":")),
            "helios.sources": json.dumps(terms.sources, separators=(",", ":")),
            "helios.checkpoint": self.checkpoint,
            "helios.steps": self.steps,
            ATTEMPT: uuid.uuid4().hex,
        }
        head = self._head.snapshotId() if self._head is not None else None

        def prepare() -> Callable[[Any], None]:
            fences = [_Ancestry(self.pipeline, self.checkpoint, head, terms.yields)]

            def prepared(operation: Any) -> None:
                for key, value in summary.items():
                    operation.set(key, value)
                if fences:  # a second operation of the batch stands on the first, which has its stamps
                    operation.validateWith(fences.pop())

            return prepared

        return Transaction(spark, self.table, prepare, self.branch, terms.properties)

    def record_of(self, batch: int, position: Mapping[str, Any], snapshot: int) -> Record:
        """The record of a batch that was looked up."""
        head = self._head
        return Record(
            checkpoint=self.checkpoint,
            batch=batch,
            position=position,
            snapshot=snapshot,
            sequence=(head.sequenceNumber() + 1) if head is not None and head.sequenceNumber() else 0,
            steps=self.steps,
        )

    def _refuse_conflict(self, error: Py4JJavaError, batch: int, terms: Terms, seen: Any | None) -> None:
        if not terms.yields and not self.only_compacted(seen):
            raise self.unseen(batch, java_message(error)) from error

    def unseen(self, batch: int, why: str) -> RunError:
        """The refusal of an overwrite that would erase what others have written."""
        return RunError(
            f"batch {batch} of {self.pipeline} would overwrite rows in {self.table.name()} that it has not seen: "
            f"{why}; nothing was written.",
            fix="look at what was written meanwhile; run again to replace it too.",
        )

    def only_compacted(self, seen: Any | None) -> bool:
        """Whether every commit since a snapshot is a compaction, which changes no rows."""
        self.table.refresh()
        snapshot = self.head()
        while snapshot is not None and seen is not None and snapshot.snapshotId() != seen.snapshotId():
            if str(snapshot.operation()) != COMPACTION:
                return False
            snapshot = self.table.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
        return seen is not None and snapshot is not None

    def _made(self, snapshot: int) -> Commit:
        self.table.refresh()
        made = self.table.snapshot(snapshot)
        summary = made.summary() if made is not None else {}
        return Commit(
            snapshot=snapshot,
            rows=int(summary.get("added-records") or 0),
            files=int(summary.get("added-data-files") or 0),
            bytes=int(summary.get("added-files-size") or 0),
        )

    def look_again(self, error: Py4JJavaError, batch: int, position: Mapping[str, Any]) -> Commit | None:
        """What a failed commit means: found after all, worth another try (None), or an error to raise."""
        kind = java_class(error)
        message = java_message(error)
        if kind in CONFLICTS:
            # Somebody committed for this pipeline or rows that conflict, or the history up to the look-up is gone. A
            # request that was sent twice is also told to have failed, when its first sending went through.
            found = self.find(batch, position, planned=True)
            return Commit(snapshot=found.snapshot, again=True) if found else None
        if kind in ("NoSuchTableException", "NotFoundException", "ForbiddenException"):
            raise RunError(
                f"batch {batch} of {self.pipeline} was refused by {self.table.name()}: {message}; nothing was written.",
                fix="run again: the batch is written once.",
            ) from error
        for pause in LOOKUP_SECONDS:
            time.sleep(pause)
            try:
                found = self.find(batch, position, planned=True)
            except Py4JError:
                continue  # the catalog is still away; the last word is below
            if found is not None:
                return self._made(found.snapshot) if found.snapshot is not None else found
        raise RunError(
            f"the outcome of batch {batch} of {self.pipeline} is unknown: {kind}: {message}. The batch is not in "
            f"{self.table.name()} now.",
            fix="run again: the batch is looked up before it is written.",
        ) from error


class Added:
    """The files that a snapshot adds, read while its manifests are there."""

    def __init__(self, table: Any, snapshot: Any) -> None:
        self._io = table.io()
        # Iceberg caches both lists in the snapshot: nothing is iterated unless the commit fails.
        self._lists = [snapshot.addedDataFiles(self._io), snapshot.addedDeleteFiles(self._io)]

    def delete(self) -> None:
        """Deletes the files of a change that did not land."""
        for files in self._lists:
            for file in files:
                self._io.deleteFile(file.location())


def parse(text: str, key: str, table: str) -> Record:
    """A record from its property.

    Raises:
        LedgerError: It is damaged, or newer than this code.
    """
    try:
        fields = json.loads(text)
        version = int(fields.pop("v"))
        if version > VERSION:
            raise LedgerError(
                f"the ledger record {key} of {table} was written by a newer Helios (its version is {version}, ours "
                f"{VERSION}); nothing was written.",
                fix="upgrade helios.",
            )
        return Record(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"the ledger record {key} of {table} is damaged ({error}); nothing was written.",
            fix=f"restore the table property {key} from an older metadata file.",
        ) from error


def changes(snapshot: Any) -> bool:
    """Whether a snapshot adds or removes any file."""
    summary = snapshot.summary()
    return any(int(summary.get(key) or 0) for key in CHANGED_FILES)


CHANGED_FILES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")


def reads(position: Mapping[str, Any] | None) -> object:
    """The part of a position that tells two batches apart: what the followed sources gave."""
    return (position or {}).get("sources")


def java_class(error: Py4JJavaError) -> str:
    """The simple class name of the Java exception behind an error."""
    return str(error.java_exception.getClass().getSimpleName())


def java_message(error: Py4JJavaError) -> str:
    """The first line of the Java exception's message."""
    text = str(error.java_exception.getMessage() or java_class(error))
    return text.splitlines()[0]


def _jvm() -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm


def _util() -> Any:
    return _jvm().org.apache.iceberg.util.SnapshotUtil


def _always_true() -> Any:
    return _jvm().org.apache.iceberg.expressions.Expressions.alwaysTrue()
