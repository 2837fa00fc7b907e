"""Compaction with Iceberg's actions.

A compaction takes no lock and yields to writers. It reads one snapshot, and may commit after a later one. Iceberg
rejects the commit if the commit would undo what another writer has changed in between. The compaction then starts
again, and gives up after a few conflicts. `docs/maintenance.md` describes what a compaction means for a writer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.catalog.operations import missing_table
from helios.errors import NotFound, RunError, first_line
from helios.model.values import caller
from helios.spark.iceberg import foreign_files
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import CONFLICTS, java_causes
from helios.spark.jvm.types.actions import JavaRewriteDataFilesResult, JavaSparkActions
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable

T = TypeVar("T")

TARGET_SIZE = "write.target-file-size-bytes"
DEFAULT_TARGET_SIZE = 512 << 20
MANIFEST_SIZE = "commit.manifest.target-size-bytes"
DEFAULT_MANIFEST_SIZE = 8 << 20
MANY_MANIFESTS = 20
"""Up to this many manifests are not worth a rewrite."""

SMALL_SHARES = (0.6, 0.75)
"""For each pass, the share of the target size below which files are rewritten.

New files may have twice the size of this limit, so any two small files fit into one new file. The second pass is for
tables that still have too many files after the first.
"""
TOLERANCE = 0.3
"""The `size_deviation` up to which no second pass is needed."""
NO_LIMIT = 1 << 50
"""A file size that no file reaches."""

MAX_CONFLICTS = 3
"""The number of conflicts after which a compaction gives up."""
SEARCHED_COMMITS = 100
"""The number of newest commits that are searched for a change or deletion of rows: see `_writers_change_rows`."""
SEVERAL_COMMITS = {"partial-progress.enabled": "true", "partial-progress.max-commits": "10"}
"""The options with which Iceberg compacts in several commits."""


@dataclass(frozen=True)
class Compaction:
    """The result of a compaction.

    Attributes:
        target: The target size of a data file in bytes.
        rewritten: The number of data files that were replaced.
        added: The number of data files that replaced them.
        read: The bytes of the replaced data files.
        deletes: The number of position delete files that were replaced.
        manifests: The number of manifests that were replaced.
        files: The number of data files that the compacted branch has now.
        bytes: The size of all data files and delete files that the compacted branch has now.
        conflicts: How often Iceberg rejected a commit because of another writer's commit.
        gave_up: Why the compaction ended early; None if it completed.
    """

    table: str
    target: int
    rewritten: int = 0
    added: int = 0
    read: int = 0
    deletes: int = 0
    manifests: int = 0
    files: int = 0
    bytes: int = 0
    conflicts: int = 0
    gave_up: str | None = None

    @property
    def size_deviation(self) -> float:
        """The deviation of `files` from the ideal number of files: see the function `size_deviation`."""
        return size_deviation(self.files, self.bytes, self.target)


def load_existing(spark: SparkSession, name: TableName) -> JavaTable:
    """Loads a table, which must exist.

    Raises:
        NotFound: There is no such table.
    """
    table = load_table(spark, name)
    if table is None:
        raise missing_table(name.catalog, name.name_in_catalog, caller())
    return table


def head_of(table: JavaTable, branch: str | None) -> JavaSnapshot | None:
    """The newest snapshot of a branch, by default main; None for an empty branch."""
    return table.snapshot(branch or "main")


def target_size(table: JavaTable, requested: int) -> int:
    """The requested target size of a file; if 0 is requested, the size in the table's properties."""
    own = table.properties().get(TARGET_SIZE)
    return requested or (int(own) if own is not None else DEFAULT_TARGET_SIZE)


def actions(spark: SparkSession) -> JavaSparkActions:
    spark_actions: JavaSparkActions = classes().org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    return spark_actions


# compaction


def size_deviation(files: int, size: int, target: int) -> float:
    """The deviation of a number of files from the ideal number, as a share of the ideal number.

    The ideal number is size / target, but at least one file.

    Examples:
        >>> size_deviation(11, 1000, 100), size_deviation(1, 10, 100)
        (0.1, 0.0)
    """
    ideal = max(1.0, size / target)
    return round(abs(files / ideal - 1), 6)


def rewrite_options(small: int) -> dict[str, str]:
    """The options with which Iceberg's `rewriteDataFiles` rewrites only files below the size `small`.

    Examples:
        >>> rewrite_options(60)["target-file-size-bytes"]
        '120'
    """
    return {
        "target-file-size-bytes": str(2 * small),
        "min-file-size-bytes": str(small),
        # With a limit, Iceberg would end files early, because it overestimates the size of rows in memory.
        "max-file-size-bytes": str(NO_LIMIT),
        "min-input-files": "2",
    }


def compact(
    spark: SparkSession,
    name: TableName,
    target: int = 0,
    *,
    branch: str | None = None,
    max_bytes: int | None = None,
) -> Compaction:
    """Rewrites small data files, so that the number of files comes near the table's size / target size.

    On main, a compaction then also rewrites position delete files, and manifests if there are many.

    Args:
        target: The target size of a file in bytes; 0 for the size in the table's properties.
        branch: The branch; None for main.
        max_bytes: About how many bytes the compaction may read; None for no limit.

    Raises:
        NotFound: There is no such table or branch.
        RunError: Spark or the catalog failed.
    """
    target, empty = _target_and_emptiness(spark, name, target, branch)
    if empty:
        return Compaction(name.text, target)
    work = _RunningCompaction(spark, name, target, branch, max_bytes)
    work.rewrite_data_files()
    if branch is None and work.gave_up is None:
        work.rewrite_delete_files()
        work.rewrite_manifests()
    return work.result()


def _target_and_emptiness(spark: SparkSession, name: TableName, target: int, branch: str | None) -> tuple[int, bool]:
    """The target size of a file, and whether the branch is empty. Releases the metadata before the compaction begins.

    Raises:
        NotFound: There is no such table or branch.
    """
    table = load_existing(spark, name)
    if branch is not None and not table.refs().containsKey(branch):
        raise NotFound(f"table {name.text} has no branch {branch!r}.", where=caller())
    return target_size(table, target), head_of(table, branch) is None


class _RunningCompaction:
    """A compaction under way, with its counts."""

    def __init__(
        self, spark: SparkSession, name: TableName, target: int, branch: str | None, max_bytes: int | None
    ) -> None:
        self.spark = spark
        self.name = name
        self.target = target
        self.branch = branch
        self.max_bytes = max_bytes
        self.gave_up: str | None = None
        self._only_one_commit = False
        self._counts = {"rewritten": 0, "added": 0, "read": 0, "deletes": 0, "manifests": 0, "conflicts": 0}

    def result(self) -> Compaction:
        head = head_of(load_existing(self.spark, self.name), self.branch)
        keys = ("total-data-files", "total-files-size")
        files, size = (int(head.summary().get(key) or 0) if head is not None else 0 for key in keys)
        return Compaction(self.name.text, self.target, files=files, bytes=size, gave_up=self.gave_up, **self._counts)

    def rewrite_data_files(self) -> None:
        """Rewrites small data files, in at most two passes."""
        for share in SMALL_SHARES:
            self._pass(max(1, int(share * self.target)))
            is_limit_near = self.max_bytes is not None and self._counts["read"] >= self.max_bytes / 2
            if is_limit_near or self.gave_up is not None or self.result().size_deviation <= TOLERANCE:
                return

    def _pass(self, small: int) -> None:
        """Rewrites the files below the size `small`: in several commits if writers only append, else in one commit."""
        while self.gave_up is None:
            table = load_existing(self.spark, self.name)
            several_commits = not self._only_one_commit and not self._writers_change_rows(table)
            options = {
                **rewrite_options(small),
                **self._limit_option(table, small),
                **(SEVERAL_COMMITS if several_commits else {}),
            }
            result = self._attempt(partial(self._rewrite, table, options))
            if result is not None and (int(result.rewrittenDataFilesCount()) or not several_commits):
                return
            # With several commits, Iceberg hides failures and conflicts. With one commit, Iceberg raises them.
            self._only_one_commit = True

    def _limit_option(self, table: JavaTable, small: int) -> dict[str, str]:
        """The option that limits how much is read; empty if all small files together are within the limit."""
        if self.max_bytes is None:
            return {}
        remaining = self.max_bytes - self._counts["read"]
        head = head_of(table, self.branch)
        version = {"versionAsOf": str(head.snapshotId())} if self.branch is not None and head is not None else {}
        files = self.spark.read.options(**version).table(f"{self.name.sql}.data_files")
        totals = files.where(f"file_size_in_bytes < {small}").selectExpr("count(*)", "sum(file_size_in_bytes)")
        [(count, size)] = totals.collect()
        if not count or size <= remaining:
            return {}
        return {"max-files-to-rewrite": str(max(2, count * remaining // size))}

    def rewrite_delete_files(self) -> None:
        """Rewrites position delete files: those that apply to data files which the compaction did not rewrite."""
        table = load_existing(self.spark, self.name)
        head = head_of(table, None)
        if head is None or int(head.summary().get("total-position-deletes") or 0) == 0:
            return
        result = self._attempt(actions(self.spark).rewritePositionDeletes(table).execute)
        if result is not None:
            self._counts["deletes"] += int(result.rewrittenDeleteFilesCount())

    def rewrite_manifests(self) -> None:
        """Rewrites manifests, if there are many more than their total size requires."""
        table = load_existing(self.spark, self.name)
        if not _many_manifests(table):
            return
        result = self._attempt(actions(self.spark).rewriteManifests(table).execute)
        if result is not None:
            self._counts["manifests"] += sum(1 for _ in result.rewrittenManifests())

    def _rewrite(self, table: JavaTable, options: Mapping[str, str]) -> JavaRewriteDataFilesResult:
        foreign_files.verify_state(self.spark, table, head_of(table, self.branch))
        action = actions(self.spark).rewriteDataFiles(table)
        for key, value in options.items():
            action.option(key, value)
        if self.branch is not None:
            action.toBranch(self.branch)
        result = action.execute()
        self._counts["rewritten"] += int(result.rewrittenDataFilesCount())
        self._counts["added"] += int(result.addedDataFilesCount())
        self._counts["read"] += int(result.rewrittenBytesCount())
        return result

    def _attempt(self, act: Callable[[], T]) -> T | None:
        """Runs an action; returns None after a conflict with another writer. `MAX_CONFLICTS` of them set `gave_up`."""
        try:
            return act()
        except (Py4JJavaError, PySparkException) as error:
            reason = conflict_reason(error)
            if reason is None:
                raise failure(self.name, "compaction", error) from error
            self._counts["conflicts"] += 1
            if self._counts["conflicts"] >= MAX_CONFLICTS:
                self.gave_up = f"it yielded to another writer {MAX_CONFLICTS} times: {reason}"
            return None

    def _writers_change_rows(self, table: JavaTable) -> bool:
        """True if writers change rows or publish branches, so that a commit of a compaction may make them retry."""
        head = head_of(table, self.branch)
        refs = table.refs()
        known = [refs.get(name) for name in listed(refs.keySet())]
        branches = [ref for ref in known if ref is not None and ref.isBranch()]
        if head is None or len(branches) > 1 or int(head.summary().get("total-delete-files") or 0) > 0:
            return True
        snapshot: JavaSnapshot | None = head
        for _ in range(SEARCHED_COMMITS):
            if snapshot is None:
                return False
            if str(snapshot.operation()) in ("overwrite", "delete"):
                return True
            parent = snapshot.parentId()
            snapshot = table.snapshot(parent) if parent is not None else None
        return False


def _many_manifests(table: JavaTable) -> bool:
    head = head_of(table, None)
    manifests = list(head.allManifests(table.io())) if head is not None else []
    # Manifests that have only deleted files do not count: the next commit drops them, so a rewrite would conflict.
    sizes = [
        int(manifest.length()) for manifest in manifests if manifest.hasAddedFiles() or manifest.hasExistingFiles()
    ]
    size = int(table.properties().get(MANIFEST_SIZE) or DEFAULT_MANIFEST_SIZE)
    return len(sizes) > max(MANY_MANIFESTS, 2 * math.ceil(sum(sizes) / size))


# failures


def conflict_reason(error: Exception) -> str | None:
    """Iceberg's message about the conflict with another writer that made an action fail; None for other failures."""
    for cause in java_causes(error):
        if str(cause.getClass().getSimpleName()) in CONFLICTS:
            return str(cause.getMessage() or cause.getClass().getSimpleName()).splitlines()[0]
    return None


def failure(name: TableName, operation: str, error: Exception) -> RunError:
    """The error for an operation that failed in Iceberg or Spark, with the message of the root cause."""
    causes = list(java_causes(error))
    if not causes:
        return RunError(f"the {operation} of {name.text} failed: {first_line(error)}")
    message = str(causes[-1].getMessage() or "").splitlines()
    exception_class = str(causes[-1].getClass().getSimpleName())
    return RunError(f"the {operation} of {name.text} failed: {exception_class}{f': {message[0]}' if message else ''}")
