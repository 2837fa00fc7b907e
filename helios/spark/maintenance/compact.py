"""Iceberg's table objects and actions, as maintenance uses them, and compaction.

Beside a writer, maintenance yields. It reads a state of the table and commits onto a later one, and Iceberg rejects it
where that would undo what came in between; then it begins anew, a few times, and gives up. It never waits, and holds
no lock. What it can do to a writer is told in `docs/maintenance.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.catalog.operations import missing_table
from helios.errors import NotFound, RunError
from helios.model.values import caller
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import CONFLICTS
from helios.table.compaction import DataFile, off, pack

TARGET_SIZE = "write.target-file-size-bytes"
DEFAULT_TARGET_SIZE = 512 << 20
MANIFEST_SIZE = "commit.manifest.target-size-bytes"
DEFAULT_MANIFEST_SIZE = 8 << 20
MANY_MANIFESTS = 20
"""Up to so many manifests nothing is won by rewriting them."""

TRIES = 3
"""How often a compaction begins before it gives up."""
PASSES = 3
"""How often a compaction looks at what came out, and mends it; where writers change rows, it commits but once."""
TRIALS = 3
"""How many trials it makes before that; one where writers change rows."""
HISTORY = 100
"""How many commits are looked back at for changes of rows."""
PARTIAL_COMMITS = 10


@dataclass(frozen=True)
class Compaction:
    """What a compaction did.

    Attributes:
        table: The table.
        target: The target size of a file in bytes.
        rewritten: Data files that were replaced.
        added: Data files that came for them.
        read: The bytes of those that were replaced.
        deletes: Position delete files that were replaced.
        manifests: Manifests that were replaced.
        files: Data files that the table has now.
        bytes: Their size, with that of delete files.
        conflicts: How often it lost to another writer.
        gave_up: Why it ended before it was through; None when it was through.
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
    def off(self) -> float:
        """How far the number of files is from bytes / target size, as a share of it."""
        return off(self.files, self.bytes, self.target)


def opened(spark: SparkSession, name: TableName) -> Any:
    """Iceberg's table object, afresh.

    Raises:
        NotFound: There is no such table.
    """
    table = load_table(spark, name)
    if table is None:
        raise missing_table(name.catalog, name.within, caller())
    return table


def head_of(table: Any, branch: str | None) -> Any | None:
    """The newest snapshot of a branch, by default main; None for an empty one."""
    return table.snapshot(branch or "main")


def target_size(table: Any, wanted: int) -> int:
    """The size that was asked for; 0 means the table's own."""
    own = table.properties().get(TARGET_SIZE)
    return wanted or (int(own) if own is not None else DEFAULT_TARGET_SIZE)


def actions(spark: SparkSession) -> Any:
    """Iceberg's actions in a session."""
    jvm = classes()
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)


# compaction


def compact(
    spark: SparkSession,
    name: TableName,
    target: int = 0,
    *,
    branch: str | None = None,
    sparing: bool = False,
    most: int | None = None,
) -> Compaction:
    """Rewrites small data files, so that there are so many files as bytes / target size ask for; then delete files.

    Args:
        spark: A session with the table's catalog.
        name: The table.
        target: The target size of a file in bytes; 0 for the table's own.
        branch: The branch; None for main.
        sparing: Whether a table that is near enough is left alone: for compactions one after the other.
        most: About how many bytes may be read at most; None for all.

    Raises:
        NotFound: There is no such table or branch.
        RunError: Spark or the catalog failed.
    """
    table = opened(spark, name)
    if branch is not None and not table.refs().containsKey(branch):
        raise NotFound(f"table {name.text} has no branch {branch!r}.", where=caller())
    work = _Compaction(spark, name, target_size(table, target), branch)
    if head_of(table, branch) is None:
        return Compaction(name.text, work.target)
    work.data_files(sparing=sparing, most=most)
    if branch is None and work.gave_up is None:
        work.delete_files()
        work.rewrite_manifests()
    return work.result()


class _Compaction:
    def __init__(self, spark: SparkSession, name: TableName, target: int, branch: str | None) -> None:
        self.spark = spark
        self.name = name
        self.target = target
        self.branch = branch
        self.gave_up: str | None = None
        self._whole = False
        self._done = {"rewritten": 0, "added": 0, "read": 0, "deletes": 0, "manifests": 0, "conflicts": 0}

    def result(self) -> Compaction:
        head = head_of(opened(self.spark, self.name), self.branch)
        summary = head.summary() if head is not None else {}
        files, size = (int(summary.get(key) or 0) for key in ("total-data-files", "total-files-size"))
        return Compaction(self.name.text, self.target, files=files, bytes=size, gave_up=self.gave_up, **self._done)

    def data_files(self, *, sparing: bool, most: int | None) -> None:
        passed = trials = 0
        while self.gave_up is None:
            table = opened(self.spark, self.name)
            careful = self._changes_rows(table)
            if passed == (1 if careful or most is not None else PASSES):
                return
            # What a pass leaves is mended only where it matters.
            files = data_files(self.spark, self.name, table, self.branch)
            packing = pack(files, self.target, sparing=sparing or passed > 0, repack=passed > 0 and not sparing)
            if packing is None or (packing.trial and trials == (1 if careful else TRIALS)):
                return
            options = packing.options()
            if most is not None and packing.read > most:
                options["max-files-to-rewrite"] = str(max(2, packing.rewritten * most // packing.read))
            by_groups = not careful and not self._whole
            if by_groups:
                options |= {
                    "partial-progress.enabled": "true",
                    "partial-progress.max-commits": str(PARTIAL_COMMITS),
                }
            result = self._try(partial(self._rewrite, table, options))
            if result is None or not int(result.rewrittenDataFilesCount()):
                if result is not None and not by_groups:
                    return
                # Group by group Iceberg is silent about what was lost to another writer, or failed: at once it tells.
                self._whole = True
                continue
            trials += 1 if packing.trial else 0
            passed += 0 if packing.trial else 1

    def delete_files(self) -> None:
        """Position deletes that merge-on-read writers left, of files that were not rewritten."""
        table = opened(self.spark, self.name)
        head = head_of(table, None)
        if head is None or int(head.summary().get("total-position-deletes") or 0) == 0:
            return
        result = self._try(actions(self.spark).rewritePositionDeletes(table).execute)
        if result is not None:
            self._done["deletes"] += int(result.rewrittenDeleteFilesCount())

    def rewrite_manifests(self) -> None:
        """Manifests, where there are many more than their size asks for."""
        table = opened(self.spark, self.name)
        if not _many_manifests(table):
            return
        result = self._try(actions(self.spark).rewriteManifests(table).execute)
        if result is not None:
            self._done["manifests"] += sum(1 for _ in result.rewrittenManifests())

    def _rewrite(self, table: Any, options: Mapping[str, str]) -> Any:
        action = actions(self.spark).rewriteDataFiles(table)
        for key, value in options.items():
            action.option(key, value)
        if self.branch is not None:
            action.toBranch(self.branch)
        result = action.execute()
        self._done["rewritten"] += int(result.rewrittenDataFilesCount())
        self._done["added"] += int(result.addedDataFilesCount())
        self._done["read"] += int(result.rewrittenBytesCount())
        return result

    def _try(self, act: Callable[[], Any]) -> Any:
        """Runs an action; None when it lost to another writer, and `gave_up` when it did so too often."""
        try:
            return act()
        except (Py4JJavaError, PySparkException) as error:
            lost = conflict(error)
            if lost is None:
                raise failed(self.name, "compaction", error) from error
            self._done["conflicts"] += 1
            if self._done["conflicts"] >= TRIES:
                self.gave_up = f"it yielded to another writer {TRIES} times: {lost}"
            return None

    def _changes_rows(self, table: Any) -> bool:
        """Whether writers change rows or publish branches: each of our commits may then cost them a try."""
        head = head_of(table, self.branch)
        branches = [str(ref) for ref in listed(table.refs().keySet()) if table.refs().get(ref).isBranch()]
        if head is None or len(branches) > 1 or int(head.summary().get("total-delete-files") or 0) > 0:
            return True
        for _ in range(HISTORY):
            if head is None:
                return False
            if str(head.operation()) in ("overwrite", "delete"):
                return True
            head = table.snapshot(head.parentId()) if head.parentId() is not None else None
        return False


def data_files(spark: SparkSession, name: TableName, table: Any, branch: str | None = None) -> list[DataFile]:
    """The data files of a branch, grouped as Iceberg's compaction groups them: by partition of the present spec."""
    head = head_of(table, branch)
    at = {"versionAsOf": str(head.snapshotId())} if branch is not None and head is not None else {}
    listed = spark.read.options(**at).table(f"{name.sql}.data_files")
    now = int(table.spec().specId())
    partition = "cast(partition AS string)" if "partition" in listed.columns else "''"
    group = f"if(spec_id = {now}, {partition}, 'another spec')"
    rows = listed.selectExpr(group, "file_size_in_bytes", "record_count").collect()
    return [DataFile(str(row[0]), int(row[1]), int(row[2])) for row in rows]


def _many_manifests(table: Any) -> bool:
    head = head_of(table, None)
    sizes = [int(manifest.length()) for manifest in head.allManifests(table.io())] if head is not None else []
    size = int(table.properties().get(MANIFEST_SIZE) or DEFAULT_MANIFEST_SIZE)
    return len(sizes) > max(MANY_MANIFESTS, 2 * math.ceil(sum(sizes) / size))


# failures


def conflict(error: Exception) -> str | None:
    """What another writer did, when that is why an action failed."""
    for cause in _causes(error):
        if str(cause.getClass().getSimpleName()) in CONFLICTS:
            return str(cause.getMessage() or "").splitlines()[0]
    return None


def failed(name: TableName, what: str, error: Exception) -> RunError:
    """A failure of Iceberg's or Spark's own, by its deepest cause."""
    causes = list(_causes(error))
    if not causes:
        return RunError(f"the {what} of {name.text} failed: {str(error).splitlines()[0]}")
    told = str(causes[-1].getMessage() or "").splitlines()
    kind = str(causes[-1].getClass().getSimpleName())
    return RunError(f"the {what} of {name.text} failed: {kind}{f': {told[0]}' if told else ''}")


def _causes(error: Exception) -> Iterator[Any]:
    cause = error.java_exception if isinstance(error, Py4JJavaError) else None
    while cause is not None:
        yield cause
        cause = cause.getCause()
