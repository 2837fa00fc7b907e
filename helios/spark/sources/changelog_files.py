"""Which files a range of commits touched, and with which deletes they stood before and after each commit.

Only these have to be read for row-level changes. What is known of the files that stood there before is looked up in
the state before the first commit that changed rows, and followed from there, commit by commit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from helios.errors import InputError
from helios.plan.nodes import ReadPlan
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaIterable, JavaList
from helios.spark.sources.offsets import expired

APPEND, REPLACE = "append", "replace"

T = TypeVar("T")

DeleteId: TypeAlias = tuple[str, "int | None"]
"""Location, and the place within it: one Puffin file holds many deletion vectors."""


class Label(NamedTuple):
    """How rows of a file count towards the changes of a commit.

    Attributes:
        ordinal: Of the commit.
        commit: Its snapshot id.
        sign: -1 for rows that stood there before it, 1 for those that did after it; the other way round for deleted
            rows. What adds up to 0 has not changed.
    """

    ordinal: int
    commit: int
    sign: int


@dataclass
class FileState:
    """A data file with the deletes that applied to it at some time.

    Attributes:
        path: Where it lies, as the column `_file` has it.
        file: Iceberg's `DataFile`.
        deletes: Iceberg's `DeleteFile`s.
        deleted: Whether the rows are meant that they deleted, rather than those that they left.
        labels: The commits before or after which these count.
    """

    path: str
    file: JavaDataFile
    deletes: tuple[JavaDeleteFile, ...]
    deleted: bool = False
    labels: list[Label] = field(default_factory=list)


@dataclass
class _Live:
    """A data file of the state that the walk has reached."""

    path: str
    file: JavaDataFile
    deletes: dict[DeleteId, JavaDeleteFile] = field(default_factory=dict)


class Touched:
    """The states of files that the row-level changes of commits follow from.

    Args:
        spark: The session.
        table: Iceberg's table object.
        read: The source, for messages.
        commits: Iceberg's snapshots, oldest first.
        keyed: Whether keys identify the rows.

    Attributes:
        appended: Files of appending commits: all of their rows are new.
        rewritten: Files before and after the other commits, which may carry rows over.

    Raises:
        InputError: The table has equality deletes, or position deletes without lineage or keys.
        LedgerError: The state before the first commit that changed rows has expired.
    """

    def __init__(
        self, spark: SparkSession, table: JavaTable, read: ReadPlan, commits: Sequence[JavaSnapshot], *, keyed: bool
    ) -> None:
        jvm = classes()
        self._jvm = jvm
        self._table = table
        self._read = read
        self._keyed = keyed or bool(jvm.org.apache.iceberg.TableUtil.supportsRowLineage(table))
        self._live: dict[str, _Live] = {}
        self._gone: set[str] = set()
        self._undone: set[DeleteId] = set()
        self._states: dict[tuple[str, frozenset[DeleteId], bool], FileState] = {}
        self.appended: list[FileState] = []
        changing = [i for i, one in enumerate(commits) if _operation(one) not in (APPEND, REPLACE)]
        first, last = (changing[0], changing[-1]) if changing else (len(commits), -1)
        self._base = self._state_before(commits[first]) if changing else None
        self._planned = self._plan()
        for i, commit in enumerate(commits):
            self._refuse_equality(commit, _equality_deletes(commit))
            if _operation(commit) == APPEND:
                self._append(commit, followed=first < i < last)
            elif first <= i <= last:
                self._change(commit)
        self._planned.close()

    @property
    def rewritten(self) -> list[FileState]:
        return list(self._states.values())

    # one commit

    def _append(self, commit: JavaSnapshot, *, followed: bool) -> None:
        label = Label(ordinal_of(commit), int(commit.snapshotId()), 1)
        for file in commit.addedDataFiles(self._table.io()):
            live = _Live(str(file.location()), file)
            self.appended.append(FileState(live.path, file, (), labels=[label]))
            if followed:
                self._live[live.path] = live

    def _change(self, commit: JavaSnapshot) -> None:
        """Follows a commit, and labels the files that it touched unless it only rewrote what was there."""
        io = self._table.io()
        removed = [self._removed(file) for file in commit.removedDataFiles(io)]
        added = {str(file.location()): _Live(str(file.location()), file) for file in commit.addedDataFiles(io)}
        self._live.update(added)
        before: dict[str, _Live] = {}

        def touch(live: _Live) -> None:
            if live.path not in added and live.path not in before:
                before[live.path] = _Live(live.path, live.file, dict(live.deletes))

        for delete in commit.addedDeleteFiles(io):
            self._refuse_delete(commit, delete)
            for live in self._targets(delete):
                touch(live)
                live.deletes[_id(delete)] = delete
        with_their_files = {known for live in removed for known in live.deletes}
        for delete in commit.removedDeleteFiles(io):
            known = _id(delete)
            for live in self._holders(delete, everywhere=known not in with_their_files):
                touch(live)
                del live.deletes[known]
            self._undone.add(known)
        if _operation(commit) != REPLACE:
            self._label(commit, removed, -1)
            self._label(commit, added.values(), 1)
            # Of a file that stays, the rows that were deleted are fewer than those that were not.
            self._label(commit, before.values(), 1, deleted=True)
            self._label(commit, [self._live[path] for path in before], -1, deleted=True)

    def _label(self, commit: JavaSnapshot, files: Iterable[_Live], sign: int, *, deleted: bool = False) -> None:
        label = Label(ordinal_of(commit), int(commit.snapshotId()), sign)
        for live in files:
            if deleted and not live.deletes:
                continue
            deletes = tuple(live.deletes.values())
            for delete in deletes:
                self._refuse_equality(commit, int(_is_equality(delete)))
            known = (live.path, frozenset(live.deletes), deleted)
            self._states.setdefault(known, FileState(live.path, live.file, deletes, deleted)).labels.append(label)

    # files

    def _removed(self, file: JavaDataFile) -> _Live:
        path = str(file.location())
        found = self._find(path) if path in self._live or self._has_deletes() else None
        self._live.pop(path, None)
        self._gone.add(path)
        return found or _Live(path, file)

    def _find(self, path: str) -> _Live | None:
        """A live file; the state before is read only as far as it has to be."""
        while path not in self._live and path not in self._gone:
            if next(self._planned, None) is None:
                return None
        return self._live.get(path)

    def _all(self) -> list[_Live]:
        for _ in self._planned:
            pass
        return list(self._live.values())

    def _holders(self, delete: JavaDeleteFile, *, everywhere: bool) -> list[_Live]:
        """The files to which a delete file applies; files of the state before are looked up if `everywhere`."""
        known, path = _id(delete), delete.referencedDataFile()
        if path is not None and everywhere:
            self._find(str(path))
        found = [live for live in self._live.values() if known in live.deletes]
        return found if found or path is not None or not everywhere else [x for x in self._all() if known in x.deletes]

    def _targets(self, delete: JavaDeleteFile) -> list[_Live]:
        """The files to which a new delete file may apply: the one that it names, or all of its partition."""
        path = self._jvm.org.apache.iceberg.util.ContentFileUtil.referencedDataFileLocation(delete)
        if path is not None:
            live = self._find(str(path))
            return [live] if live is not None else []
        spec, partition = int(delete.specId()), delete.partition()
        known = self._table.specs().get(spec)
        assert known is not None
        order = self._jvm.org.apache.iceberg.types.Comparators.forType(known.partitionType())
        return [
            live
            for live in self._all()
            if int(live.file.specId()) == spec
            and order.compare(live.file.partition(), partition) == 0
            and live.file.dataSequenceNumber() <= delete.dataSequenceNumber()
        ]

    # the state before the first commit that changed rows

    def _state_before(self, commit: JavaSnapshot) -> JavaSnapshot | None:
        parent = commit.parentId()
        if parent is None:
            return None
        base = self._table.snapshot(parent)
        if base is None:
            # The files that the commit removed may have been deleted with the last state that held them.
            raise expired(int(parent), self._read.name)
        self._refuse_equality(base, _equality_deletes(base))
        return base

    def _has_deletes(self) -> bool:
        return self._base is not None and not self._base.deleteManifests(self._table.io()).isEmpty()

    def _plan(self) -> Generator[_Live]:
        """Adds the files of that state to the live ones, one after the other."""
        if self._base is None:
            return
        planned = self._table.newScan().useSnapshot(self._base.snapshotId()).planFiles()
        try:
            for task in _each(planned):
                file = task.file()
                path = str(file.location())
                if path in self._gone or path in self._live:
                    continue
                deletes = {_id(delete): delete for delete in task.deletes()}
                kept = {known: delete for known, delete in deletes.items() if known not in self._undone}
                self._live[path] = _Live(path, file, kept)
                yield self._live[path]
        finally:
            planned.close()

    # refusals

    def _refuse_equality(self, commit: JavaSnapshot, count: str | int | None) -> None:
        if int(count or 0) > 0:
            raise InputError(
                f"the changes of {self._read.name} cannot be read: it has equality deletes at snapshot "
                f"{commit.snapshotId()}, which name the rows that are gone by their values only.",
                where=self._read.source.origin,
                fix="compact the table, which applies them, and read the changes after that; or read its state, "
                "without changes.",
            )

    def _refuse_delete(self, commit: JavaSnapshot, delete: JavaDeleteFile) -> None:
        self._refuse_equality(commit, int(_is_equality(delete)))
        if not self._keyed and _operation(commit) != REPLACE:
            raise InputError(
                f"the changes of {self._read.name} cannot be read without keys: it is merge-on-read of format v2, and "
                f"its snapshot {commit.snapshotId()} deleted rows by their positions, without row lineage.",
                where=self._read.source.origin,
                fix='name the columns that identify a row: keys=["id"].',
            )


def tasks(spark: SparkSession, table: JavaTable, states: Iterable[FileState]) -> JavaList[JavaFileScanTask]:
    """A Java list of the tasks that read files, each with its deletes."""
    jvm = classes()
    core = jvm.org.apache.iceberg
    schema = core.SchemaParser.toJson(table.schema())
    everything = core.expressions.ResidualEvaluator.unpartitioned(core.expressions.Expressions.alwaysTrue())
    specs: dict[int, str] = {}
    made: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
    for state in states:
        spec = int(state.file.specId())
        if spec not in specs:
            specs[spec] = core.PartitionSpecParser.toJson(table.specs().get(spec))
        deletes = java_array(core.DeleteFile, state.deletes)
        made.add(core.BaseFileScanTask(state.file, deletes, schema, specs[spec], everything))
    return made


V1_ORDINALS = 1 << 53
"""What is taken from the milliseconds of a commit of format v1: after an upgrade sequence numbers begin at 1."""


def ordinal_of(commit: JavaSnapshot) -> int:
    """A snapshot's place in the history: its sequence number; its time where format v1 has none, below all of those."""
    return int(commit.sequenceNumber()) or int(commit.timestampMillis()) - V1_ORDINALS


def _operation(commit: JavaSnapshot) -> str:
    return str(commit.operation())


def _id(delete: JavaDeleteFile) -> DeleteId:
    offset = delete.contentOffset()
    return str(delete.location()), int(offset) if offset is not None else None


def _equality_deletes(commit: JavaSnapshot) -> str | None:
    # The oldest writers left no summary.
    summary = commit.summary()
    return summary.get("total-equality-deletes") if summary is not None else None


def _is_equality(delete: JavaDeleteFile) -> bool:
    return str(delete.content()) == "EQUALITY_DELETES"


def _each(iterable: JavaIterable[T]) -> Iterator[T]:
    walk = iterable.iterator()
    while walk.hasNext():
        yield walk.next()
