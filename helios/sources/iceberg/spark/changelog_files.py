"""Finds the data files that a range of commits touched, and the deletes that applied to them before and after a commit.

Only these files are read for row-level changes. Files that existed before the range come from the base state, which is
the state before the first commit that changed rows. From there on, the live files are tracked commit by commit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from helios.errors import InputError
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.spark.offsets import expired_error, may_rebootstrap
from helios.spark.iceberg import changed_files, foreign_files
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaIterable, JavaList

APPEND, REPLACE = "append", "replace"

T = TypeVar("T")

DeleteId: TypeAlias = tuple[str, "int | None"]
"""The location and the content offset of a delete file: one Puffin file can have many deletion vectors."""


class Label(NamedTuple):
    """How the rows of a file count in the changes of a commit.

    Attributes:
        commit: The snapshot id of the commit.
        sign: -1 for rows that existed before the commit, and 1 for rows that exist after it. For deleted rows
            (`FileState.deleted`), the sign is reversed: 1 for rows that were already deleted before the commit, and -1
            for rows that are deleted after it. Equal rows whose signs add up to 0 have not changed.
    """

    ordinal: int
    commit: int
    sign: int


@dataclass
class FileState:
    """A data file with the deletes that applied to it at one point in the history.

    Attributes:
        path: The location of the file, as in the column `_file`.
        deleted: Whether the rows are those that the deletes removed, instead of the live rows.
        labels: A label for each commit in whose comparison the rows take part.
    """

    path: str
    file: JavaDataFile
    deletes: tuple[JavaDeleteFile, ...]
    deleted: bool = False
    labels: list[Label] = field(default_factory=list)


@dataclass
class _LiveFile:
    """A data file that is live after the commits that were applied so far."""

    path: str
    file: JavaDataFile
    deletes: dict[DeleteId, JavaDeleteFile] = field(default_factory=dict)


class TouchedFiles:
    """The file states from which the row-level changes of commits are computed.

    Args:
        commits: Iceberg's snapshots, oldest first.
        keyed: Whether keys identify the rows.

    Attributes:
        appended: The files of appending commits; all of their rows are new.
        rewritten: The files that the other commits touched, as the files were before and after each of these commits.
            Such commits may carry rows over unchanged.

    Raises:
        InputError: The table has equality deletes, or position deletes without lineage or keys.
        LedgerError: The base state has expired.
    """

    def __init__(
        self, spark: SparkSession, table: JavaTable, read: ReadPlan, commits: Sequence[JavaSnapshot], *, keyed: bool
    ) -> None:
        jvm = classes()
        self._jvm = jvm
        self._table = table
        self._read = read
        self._keyed = keyed or bool(jvm.org.apache.iceberg.TableUtil.supportsRowLineage(table))
        self._live: dict[str, _LiveFile] = {}
        self._removed_paths: set[str] = set()
        self._removed_deletes: set[DeleteId] = set()
        self._states: dict[tuple[str, frozenset[DeleteId], bool], FileState] = {}
        self.appended: list[FileState] = []
        changing = [i for i, commit in enumerate(commits) if _operation(commit) not in (APPEND, REPLACE)]
        first, last = (changing[0], changing[-1]) if changing else (len(commits), -1)  # else an empty range
        self._base = self._state_before(commits[first]) if changing else None
        self._base_files = self._plan_base()
        for i, commit in enumerate(commits):
            self._refuse_equality(commit, _equality_deletes(commit))
            if _operation(commit) == APPEND:
                # The base state has the files of appends before `first`, and no commit changes the files of appends
                # after `last`. So only the files of appends between the two are tracked.
                self._append(commit, track=first < i < last)
            elif first <= i <= last:
                self._change(commit)
        self._base_files.close()

    @property
    def rewritten(self) -> list[FileState]:
        return list(self._states.values())

    # one commit

    def _append(self, commit: JavaSnapshot, *, track: bool) -> None:
        """Adds the files of an appending commit; `track` also adds them to the live files."""
        label = Label(ordinal_of(commit), int(commit.snapshotId()), 1)
        for file in changed_files.added_data(self._table, commit):
            live = _LiveFile(str(file.location()), file)
            self.appended.append(FileState(live.path, file, (), labels=[label]))
            if track:
                self._live[live.path] = live

    def _change(self, commit: JavaSnapshot) -> None:
        """Applies a commit to the live files, and labels the files that it touched; a compaction gets no labels."""
        table = self._table
        removed = [self._remove(file) for file in changed_files.removed_data(table, commit)]
        new_files = changed_files.added_data(table, commit)
        added = {str(file.location()): _LiveFile(str(file.location()), file) for file in new_files}
        self._live.update(added)
        before: dict[str, _LiveFile] = {}

        def touch(live: _LiveFile) -> None:
            if live.path not in added and live.path not in before:
                before[live.path] = _LiveFile(live.path, live.file, dict(live.deletes))

        for delete in changed_files.added_deletes(table, commit):
            self._refuse_delete(commit, delete)
            for live in self._targets(delete):
                touch(live)
                live.deletes[_id(delete)] = delete
        removed_with_files = {delete_id for live in removed for delete_id in live.deletes}
        for delete in changed_files.removed_deletes(table, commit):
            delete_id = _id(delete)
            # A delete that was removed together with its data file need not be looked up in the base state.
            for live in self._files_with(delete, search_base=delete_id not in removed_with_files):
                touch(live)
                del live.deletes[delete_id]
            self._removed_deletes.add(delete_id)
        if _operation(commit) != REPLACE:
            self._label(commit, removed, -1)
            self._label(commit, added.values(), 1)
            # If a file stays, its deleted rows are read instead of its live rows, which is cheaper.
            self._label(commit, before.values(), 1, deleted=True)
            self._label(commit, [self._live[path] for path in before], -1, deleted=True)

    def _label(self, commit: JavaSnapshot, files: Iterable[_LiveFile], sign: int, *, deleted: bool = False) -> None:
        """Adds a label of the commit to the current states of files."""
        label = Label(ordinal_of(commit), int(commit.snapshotId()), sign)
        for live in files:
            if deleted and not live.deletes:
                continue
            deletes = tuple(live.deletes.values())
            for delete in deletes:
                self._refuse_equality(commit, int(_is_equality(delete)))
            key = (live.path, frozenset(live.deletes), deleted)
            self._states.setdefault(key, FileState(live.path, live.file, deletes, deleted)).labels.append(label)

    # files

    def _remove(self, file: JavaDataFile) -> _LiveFile:
        """Removes a data file from the live files, and returns it with its deletes."""
        path = str(file.location())
        # The base state is read only to find the deletes of the file, if the base state has any deletes.
        live = self._find_live(path) if path in self._live or self._has_deletes() else None
        self._live.pop(path, None)
        self._removed_paths.add(path)
        return live or _LiveFile(path, file)

    def _find_live(self, path: str) -> _LiveFile | None:
        """The live file with a path; the base state is read only until the file is found."""
        while path not in self._live and path not in self._removed_paths:
            if next(self._base_files, None) is None:
                return None
        return self._live.get(path)

    def _all_live(self) -> list[_LiveFile]:
        for _ in self._base_files:
            pass
        return list(self._live.values())

    def _files_with(self, delete: JavaDeleteFile, *, search_base: bool) -> list[_LiveFile]:
        """The live files to which a delete file applies; `search_base` also looks for them in the base state."""
        delete_id, path = _id(delete), delete.referencedDataFile()
        if path is not None and search_base:
            self._find_live(str(path))
        files = [live for live in self._live.values() if delete_id in live.deletes]
        if files or path is not None or not search_base:
            return files
        return [live for live in self._all_live() if delete_id in live.deletes]

    def _targets(self, delete: JavaDeleteFile) -> list[_LiveFile]:
        """The live files to which a new delete file may apply: its referenced data file, or its partition's files."""
        path = self._jvm.org.apache.iceberg.util.ContentFileUtil.referencedDataFileLocation(delete)
        if path is not None:
            live = self._find_live(str(path))
            return [live] if live is not None else []
        spec_id, partition = int(delete.specId()), delete.partition()
        spec = self._table.specs().get(spec_id)
        assert spec is not None
        order = self._jvm.org.apache.iceberg.types.Comparators.forType(spec.partitionType())
        return [
            live
            for live in self._all_live()
            if int(live.file.specId()) == spec_id
            and order.compare(live.file.partition(), partition) == 0
            and live.file.dataSequenceNumber() <= delete.dataSequenceNumber()
        ]

    # the base state

    def _state_before(self, commit: JavaSnapshot) -> JavaSnapshot | None:
        """The snapshot before a commit; None if the commit is the first one."""
        parent = commit.parentId()
        if parent is None:
            return None
        base = self._table.snapshot(parent)
        if base is None:
            # The expiry of the parent may have deleted the files that the commit removed.
            raise expired_error(int(parent), self._read.name, suggests_rebootstrap=may_rebootstrap(self._read))
        self._refuse_equality(base, _equality_deletes(base))
        return base

    def _has_deletes(self) -> bool:
        return self._base is not None and not self._base.deleteManifests(self._table.io()).isEmpty()

    def _plan_base(self) -> Generator[_LiveFile]:
        """Adds the files of the base state to the live files, and yields them one at a time."""
        if self._base is None:
            return
        scan = foreign_files.with_counts(self._table, self._table.newScan())
        planned = scan.useSnapshot(self._base.snapshotId()).planFiles()
        try:
            for task in _iterate(planned):
                file = task.file()
                path = str(file.location())
                if path in self._removed_paths or path in self._live:
                    continue
                deletes = {_id(delete): delete for delete in task.deletes()}
                kept = {id: delete for id, delete in deletes.items() if id not in self._removed_deletes}
                self._live[path] = _LiveFile(path, file, kept)
                yield self._live[path]
        finally:
            planned.close()

    # refusals

    def _refuse_equality(self, commit: JavaSnapshot, count: str | int | None) -> None:
        if int(count or 0) > 0:
            raise InputError(
                f"the changes of {self._read.name} cannot be read: the table has equality deletes at snapshot "
                f"{commit.snapshotId()}, which identify deleted rows by their values only.",
                where=self._read.source.origin,
                fix="compact the table, which applies the deletes, and read the changes after that; or read rows, "
                "without .changes().",
            )

    def _refuse_delete(self, commit: JavaSnapshot, delete: JavaDeleteFile) -> None:
        """Refuses an equality delete, and a position delete if nothing identifies the rows."""
        self._refuse_equality(commit, int(_is_equality(delete)))
        if not self._keyed and _operation(commit) != REPLACE:
            raise InputError(
                f"the changes of {self._read.name} cannot be read without keys: the table is merge-on-read of format "
                f"v2, and its snapshot {commit.snapshotId()} deleted rows by their positions, without row lineage.",
                where=self._read.source.origin,
                fix='name the columns that identify a row: keys=["id"].',
            )


def tasks(spark: SparkSession, table: JavaTable, states: Iterable[FileState]) -> JavaList[JavaFileScanTask]:
    """The scan tasks that read files with their deletes, as a Java list."""
    jvm = classes()
    core = jvm.org.apache.iceberg
    schema = core.SchemaParser.toJson(table.schema())
    no_filter = core.expressions.ResidualEvaluator.unpartitioned(core.expressions.Expressions.alwaysTrue())
    specs: dict[int, str] = {}
    java_tasks: JavaList[JavaFileScanTask] = jvm.java.util.ArrayList()
    for state in states:
        spec_id = int(state.file.specId())
        if spec_id not in specs:
            specs[spec_id] = core.PartitionSpecParser.toJson(table.specs().get(spec_id))
        deletes = java_array(core.DeleteFile, state.deletes)
        java_tasks.add(core.BaseFileScanTask(state.file, deletes, schema, specs[spec_id], no_filter))
    return java_tasks


V1_ORDINALS = 1 << 53
"""The number that is subtracted from commit times of format v1, so that they sort below all sequence numbers."""


def ordinal_of(commit: JavaSnapshot) -> int:
    """A snapshot's ordinal: its sequence number; in format v1, which has none, its commit time minus `V1_ORDINALS`."""
    return int(commit.sequenceNumber()) or int(commit.timestampMillis()) - V1_ORDINALS


def _operation(commit: JavaSnapshot) -> str:
    return str(commit.operation())


def _id(delete: JavaDeleteFile) -> DeleteId:
    offset = delete.contentOffset()
    return str(delete.location()), int(offset) if offset is not None else None


def _equality_deletes(commit: JavaSnapshot) -> str | None:
    summary = commit.summary()  # None if a very old writer has committed
    return summary.get("total-equality-deletes") if summary is not None else None


def _is_equality(delete: JavaDeleteFile) -> bool:
    return str(delete.content()) == "EQUALITY_DELETES"


def _iterate(iterable: JavaIterable[T]) -> Iterator[T]:
    walk = iterable.iterator()
    while walk.hasNext():
        yield walk.next()
