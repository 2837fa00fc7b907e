"""An upsert by the columnar engine, which runs three Spark jobs.

The first job has one task, which finds the newest row of each key. The tasks of the second job read the target's files,
find the old rows of these keys, and write files of pairs: each pair is the old and the new row of a key. The tasks of
the third job write the new rows; a new row keeps the row id of the old row that it replaces. Then Iceberg, in the
driver, writes deletion vectors from the positions of the old rows.
"""

from __future__ import annotations

import base64
import json
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from pyspark.sql.types import StructType

from helios.native.program import NotNative, Program
from helios.native.upsert import CHANGED, ROW_ID, ROW_ID_FIELD, Upsert, Vector, lineage
from helios.native.work import InputFile, Share, Stores, Target, TaskReport, Work
from helios.plan.native.upserts import VECTORS_SINCE, check_kinds
from helios.spark.iceberg.merge_scope import MergeScope
from helios.spark.iceberg.scan_tasks import plan_tasks
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.callbacks import until_scope_ends
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaDeleteFile, JavaFileScanTask, JavaTableScan
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaIterable
from helios.spark.jvm.types.updates import JavaRowDelta
from helios.spark.native.batch import NativeBatch, WrittenFiles, data_files, refuse_small, require_accepted, run_tasks
from helios.spark.native.fields import fields_of, null_if_absent, string_map
from helios.spark.native.inputs import ScanFile, scan_files
from helios.spark.native.spread import divide
from helios.spark.native.stores import Store, store_of
from helios.spark.native.target import target_of

MAX_ROWS = 2_000_000
"""The maximum number of rows of a batch, because one task keeps all of them in memory; Spark writes larger batches."""
MAX_BYTES = 256 << 20
"""The maximum number of bytes of the batch's files, also because one task keeps all rows in memory."""
MAX_FILES = 1_000
"""The maximum number of target files that may have keys of the batch, because each file takes several JVM calls."""
TASK_ROWS = 500_000
"""The number of rows for each writing task; fewer rows are not worth another task."""

KeyBounds = Mapping[str, Sequence[object]]
"""The smallest and the largest value of each key column in a batch, from `helios.native.newest.bounds`."""


@dataclass(frozen=True)
class UpsertKeys:
    """The key columns and the order column of an upsert.

    Attributes:
        order: The column that orders the rows with the same key; None if each key may occur only once.
        scope: Returns the target's rows that a batch can change, from the batch's number of rows and bounds of keys.
    """

    keys: tuple[str, ...]
    order: str | None
    scope: Callable[[int, KeyBounds], MergeScope]


def try_upsert(
    pending: Transaction, native: NativeBatch, analyzed: StructType, stored: StructType, keyed: UpsertKeys
) -> bool:
    """Upserts a batch with the columnar engine; returns False, with nothing written, if Spark must write the batch.

    Args:
        analyzed: The columns after the steps, according to Spark's analyzer.
        stored: The columns of the rows in the table.
    """
    try:
        if native.only_if_better:
            refuse_small(native.files.size + size_of(pending.table))
        native.check_columns(analyzed, stored)
        check_kinds(keyed.keys, keyed.order, {f.name: f.dataType.simpleString() for f in analyzed.fields})
        _Attempt(pending, native, keyed, _target(pending, native, stored)).run()
    except NotNative as reason:
        native.leave_to_spark(reason)
        return False
    return True


def _target(pending: Transaction, native: NativeBatch, stored: StructType) -> Target:
    """Describes the table for the tasks, with the additional columns that store row ids in its files.

    Raises:
        NotNative: The table has no deletion vectors, or the engine does not write such a table.
    """
    jvm, table = classes(), pending.table
    version = int(jvm.org.apache.iceberg.TableUtil.formatVersion(table))
    if version < VECTORS_SINCE:
        raise NotNative(f"the table has format v{version}, whose deletes the engine does not write")
    mode = string_map(pending.properties).get("write.merge.mode", "copy-on-write")
    if mode != "merge-on-read":
        raise NotNative(f"changed rows are written {mode}")
    if {ROW_ID, CHANGED} & {field.name.lower() for field in stored.fields}:
        raise NotNative("the table has a column with the name of a column of row lineage")
    store = store_of(table, native.catalog)
    if store.kind != "local":
        raise NotNative(f"the table is on {store.kind}, and the engine upserts only on local disks")
    target = target_of(pending.spark, table, store, pending.properties, stored)
    if target.sort:
        raise NotNative("the table has a sort order, and the engine upserts rows unsorted")
    metrics = str(jvm.org.apache.iceberg.MetricsConfig.forTable(table).columnMode(ROW_ID))
    return replace(target, columns=(*target.columns, *lineage(metrics)))


class _Attempt:
    """One attempt at an upsert."""

    def __init__(self, pending: Transaction, native: NativeBatch, keyed: UpsertKeys, target: Target) -> None:
        self._pending = pending
        self._native = native
        self._keyed = keyed
        self._written = WrittenFiles(target.folder, uuid.uuid4().hex)
        self._source = native.files.inputs(native.program)
        source = Work(self._written.name, native.program, dict(self._source.ids), target, self._source.absent)
        rows_path = os.path.join(target.folder, f"{self._written.name}.rows")
        self._upsert = Upsert(source, keyed.keys, keyed.order, rows_path)
        self._row_count = 0

    def run(self) -> None:
        """Writes the files, and adds them to the transaction.

        Raises:
            NotNative: Spark must write the batch; no written file is left behind.
        """
        try:
            report = self._write_newest()
            self._row_count = int(report["rows"])
            self._pending.replace_rows(self._keyed.scope(self._row_count, report["bounds"]), self._write_change)
        except BaseException:
            self._written.delete()
            self._delete(".puffin")
            raise
        finally:
            self._delete(".rows", ".pairs")
        self._native.count_files()
        self._native.count_dropped((report,))

    def _delete(self, *endings: str) -> None:
        """Deletes this attempt's files with these endings in the target's data folder, but not in partition folders."""
        folder, name = os.path.split(os.path.splitext(self._upsert.rows_path)[0])
        for file in os.listdir(folder) if os.path.isdir(folder) else ():
            if name in file and file.removesuffix(".crc").endswith(endings):
                os.unlink(os.path.join(folder, file))

    def _run_tasks(self, kind: str, upsert: Upsert, shares: Sequence[Share]) -> list[TaskReport]:
        stores: Stores = (self._source.store.properties, {})
        if not shares:
            return []
        return require_accepted(run_tasks(self._pending.spark, kind, upsert.to_json(), shares, stores))

    def _write_newest(self) -> TaskReport:
        """Writes the newest row of each key into a file, which the tasks of the later jobs read."""
        files, commits = list(self._source.files), self._native.files.commits()
        if sum(file.rows or 0 for file in files) > MAX_ROWS or sum(file.size for file in files) > MAX_BYTES:
            raise NotNative(f"the batch has more than {MAX_ROWS:,} rows, or {MAX_BYTES >> 20} MB of files")
        # As with Spark, files are ordered by their commits, and then by their names.
        files.sort(key=lambda file: (commits[file.location], file.location.encode()))
        (report,) = self._run_tasks("reduce", self._upsert, [[astuple(file) for file in files]])
        return report

    def _write_change(self, scan: JavaTableScan) -> _Change:
        """Writes the files of the change; `scan` selects the target's files that may have a key of the batch."""
        table = self._pending.table
        if not self._row_count:
            return _Change(table, ())
        tasks = plan_tasks(self._pending.spark, scan)
        scanned = scan_files(self._pending.spark, tasks, "target", MAX_FILES)
        inputs = [file.input(Store(), "target") for file in scanned]
        if any(offset is None for file in inputs for _, offset, _ in file.deletes):
            raise NotNative("files of the table have position deletes from before the upgrade to format v3")
        task_by_file = {file.location: task for file, task in zip(inputs, tasks.toArray(), strict=True)}
        reports = self._run_tasks("match", self._match_input(table), self._match_shares(inputs, scanned))
        vectors = [Vector(**vector) for report in reports for vector in report["vectors"]]
        pair_files = [report["pairs"] for report in reports if report["pairs"] is not None]
        files = self._written.from_reports(self._run_tasks("save", self._upsert, self._save_shares(pair_files))).files
        return _with_vectors(_Change(table, files), self._written.name, vectors, task_by_file)

    def _match_input(self, table: JavaTable) -> Upsert:
        """The common input of the tasks that read the target's keys, order column and stored row ids."""
        order = [self._keyed.order] if self._keyed.order is not None else []
        names = dict.fromkeys((*self._keyed.keys, *order))
        kinds, fields = dict(self._upsert.work.program.columns), fields_of(table.schema())
        field_ids, nulls = {field["name"]: field["id"] for field in fields}, null_if_absent(table, fields)
        read = (*((name, kinds[name]) for name in names), (ROW_ID, "bigint"))
        ids = {name: field_ids[name] for name in names} | {ROW_ID: ROW_ID_FIELD}
        absent = (*(name for name in names if field_ids[name] in nulls), ROW_ID)
        work = Work(self._written.name, Program(read, (), read), ids, self._upsert.work.target, absent)
        return replace(self._upsert, work=work)

    def _match_shares(self, files: list[InputFile], scanned: list[ScanFile]) -> list[Share]:
        """The target's files for each task, each file with the id of its first row."""
        first_rows = {file.location: file.first_row for file in scanned}
        cores = self._pending.spark.sparkContext.defaultParallelism
        return [[(astuple(file), first_rows[file.location]) for file in share] for share in divide(files, cores)]

    def _save_shares(self, pair_files: list[str]) -> list[Share]:
        """The range of the batch's newest rows that each task writes, with the files of pairs."""
        cores = self._pending.spark.sparkContext.defaultParallelism
        count = min(cores, math.ceil(self._row_count / TASK_ROWS))
        size = math.ceil(self._row_count / count)
        return [[(start, size, pair_files)] for start in range(0, self._row_count, size)]


@dataclass(frozen=True)
class _Change:
    """The files that an upsert adds to a table, and those that it removes.

    Attributes:
        files: The metadata of the new data files, as Iceberg's JSON.
        added: The new deletion vectors.
        removed: The delete files that the new vectors replace.
        referenced: The locations of the data files to which the new vectors belong.
    """

    table: JavaTable
    files: Sequence[str]
    added: Sequence[JavaDeleteFile] = ()
    removed: Sequence[JavaDeleteFile] = ()
    referenced: JavaIterable[str] | None = None

    def add_to(self, delta: JavaRowDelta) -> None:
        for file in data_files(self.table, self.files):
            delta.addRows(file)
        for vector in self.added:
            delta.addDeletes(vector)
        for delete in self.removed:
            delta.removeDeletes(delete)
        if self.referenced is not None:
            delta.validateDataFilesExist(self.referenced)


def _with_vectors(
    change: _Change, name: str, vectors: Sequence[Vector], task_by_file: Mapping[str, JavaFileScanTask]
) -> _Change:
    """Writes deletion vectors, all into one file, and adds them to a change.

    Args:
        name: The part of the file's name that identifies the attempt.
        vectors: The deleted positions of each data file.
        task_by_file: The scan task of each data file, by the file's location.
    """
    if not vectors:
        return change
    jvm, table = classes(), change.table
    factory = jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 0, 0).operationId(name).suffix("deletes")
    files = factory.format(jvm.org.apache.iceberg.FileFormat.PUFFIN).build()
    writer = jvm.org.apache.iceberg.deletes.BaseDVFileWriter(files, until_scope_ends(_NoEarlierDeletes()))
    removed: list[JavaDeleteFile] = []
    for vector in vectors:
        task = task_by_file[vector.location]
        file, deletes = task.file(), task.deletes()
        writer.delete(vector.location, _positions(vector), table.specs().get(file.specId()), file.partition())
        if int(deletes.size()):
            # As with Iceberg's writer, a delete file for several data files stays: the new vector takes precedence.
            of_one_file = jvm.org.apache.iceberg.util.ContentFileUtil.isFileScoped
            removed += [delete for delete in listed(deletes) if of_one_file(delete)]
    writer.close()
    result = writer.result()
    return replace(change, added=listed(result.deleteFiles()), removed=removed, referenced=result.referencedDataFiles())


def _positions(vector: Vector) -> object:
    """The deleted positions of a data file, as an Iceberg `PositionDeleteIndex`."""
    blob = base64.b64decode(vector.blob)
    # Iceberg's `deserialize` needs the metadata of a delete file. This metadata describes a file that does not exist.
    descriptor = {
        "spec-id": 0, "content": "position-deletes", "file-path": "none", "file-format": "puffin", "partition": [],
        "file-size-in-bytes": len(blob), "record-count": vector.count, "referenced-data-file": vector.location,
        "content-offset": 0, "content-size-in-bytes": len(blob),
    }  # fmt: skip
    jvm = classes()
    node = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree(json.dumps(descriptor))
    file = jvm.org.apache.iceberg.ContentFileParser.fromJson(node, jvm.org.apache.iceberg.PartitionSpec.unpartitioned())
    return jvm.org.apache.iceberg.deletes.PositionDeleteIndex.deserialize(blob, file)


def size_of(table: JavaTable) -> int:
    """The size of a table's files in bytes, from the summary of its newest commit; 0 if the summary lacks it."""
    snapshot = table.currentSnapshot()
    return int(string_map(snapshot.summary()).get("total-files-size", 0)) if snapshot is not None else 0


class _NoEarlierDeletes:
    """A `java.util.function.Function` that returns no earlier deletes, because the tasks' vectors include them."""

    def apply(self, location: str) -> None:
        return None

    class Java:
        implements = ("java.util.function.Function",)
