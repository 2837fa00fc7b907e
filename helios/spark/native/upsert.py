"""An upsert by the columnar engine: the newest rows, the positions of the rows they replace, and new files.

Three jobs: one task finds the newest row of each key, tasks over the target's files find the old rows by the keys, and
tasks write the new ones. Iceberg writes the deletion vectors, in the driver, from the positions that tasks have found.
"""

from __future__ import annotations

import base64
import json
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
from helios.spark.native.batch import NativeBatch, Written, accepted, data_files, refuse_small, run
from helios.spark.native.fields import absent, fields_of, texts
from helios.spark.native.inputs import ScanFile, scan_files
from helios.spark.native.spread import shared
from helios.spark.native.stores import Store, store_of
from helios.spark.native.target import target_of

MOST_ROWS = 2_000_000
"""Rows of a batch that one task has in memory; Spark spills larger ones."""
MOST_BYTES = 256 << 20
"""Bytes of their files."""
MOST_FILES = 1_000
"""Files of the target that may hold a key of the batch: of each that holds one, the JVM is asked several times."""
TASK_ROWS = 500_000
"""Rows for which one more task that writes is worth it, with the files that it adds."""

KeyBounds = Mapping[str, Sequence[object]]
"""By key: its smallest and its largest value in a batch, as `helios.native.newest.bounds` gives them."""


@dataclass(frozen=True)
class Keyed:
    """The key columns and the order of an upsert.

    Attributes:
        keys: The key columns.
        order: The column that orders the rows of a key; None where each may occur once.
        scope: What a batch with so many rows and such keys can change.
    """

    keys: tuple[str, ...]
    order: str | None
    scope: Callable[[int, KeyBounds], MergeScope]


def upserted(pending: Transaction, native: NativeBatch, made: StructType, stored: StructType, keyed: Keyed) -> bool:
    """Upserts a batch with the columnar engine; False, with nothing written, if Spark must do it.

    Args:
        pending: The transaction.
        native: The batch.
        made: The columns that the steps give, by Spark's analyzer.
        stored: Those of the rows as they are stored.
        keyed: Its keys and its order.
    """
    try:
        if native.guarded:
            refuse_small(native.files.size + size_of(pending.table))
        native.check_columns(made, stored)
        check_kinds(keyed.keys, keyed.order, {f.name: f.dataType.simpleString() for f in made.fields})
        _Upserting(pending, native, keyed, _target(pending, native, stored)).run()
    except NotNative as reason:
        native.leave(reason)
        return False
    return True


def _target(pending: Transaction, native: NativeBatch, stored: StructType) -> Target:
    """The table, whose files keep the ids of rows.

    Raises:
        NotNative: It has no deletion vectors, or is not one that the engine writes.
    """
    jvm, table = classes(), pending.table
    version = int(jvm.org.apache.iceberg.TableUtil.formatVersion(table))
    if version < VECTORS_SINCE:
        raise NotNative(f"the table has format v{version}, whose deletes the engine does not write")
    mode = texts(pending.properties).get("write.merge.mode", "copy-on-write")
    if mode != "merge-on-read":
        raise NotNative(f"changed rows are written {mode}")
    if {ROW_ID, CHANGED} & {field.name.lower() for field in stored.fields}:
        raise NotNative("the table has a column that is named as one of row lineage's")
    store = store_of(table, native.catalog)
    if store.kind != "local":
        raise NotNative(f"the table is on {store.kind}, and the engine upserts on local disks alone")
    target = target_of(pending.spark, table, store, pending.properties, stored)
    if target.sort:
        raise NotNative("the table has a sort order, and changed rows come unsorted")
    metrics = str(jvm.org.apache.iceberg.MetricsConfig.forTable(table).columnMode(ROW_ID))
    return replace(target, columns=(*target.columns, *lineage(metrics)))


class _Upserting:
    """One try of an upsert.

    Args:
        pending: The transaction.
        native: The batch.
        keyed: Its keys and its order.
        target: The table.
    """

    def __init__(self, pending: Transaction, native: NativeBatch, keyed: Keyed, target: Target) -> None:
        self._pending = pending
        self._native = native
        self._keyed = keyed
        self._written = Written(target.folder, uuid.uuid4().hex)
        self._source = native.files.inputs(native.program)
        source = Work(self._written.name, native.program, dict(self._source.ids), target, self._source.absent)
        rows = os.path.join(target.folder, f"{self._written.name}.rows")
        self._upsert = Upsert(source, keyed.keys, keyed.order, rows)
        self._rows = 0

    def run(self) -> None:
        """Writes the files, and adds them to the transaction.

        Raises:
            NotNative: Spark must do the batch; nothing is left of it.
        """
        try:
            report = self._reduced()
            self._rows = int(report["rows"])
            self._pending.replace_rows(self._keyed.scope(self._rows, report["bounds"]), self._changed)
        except BaseException:
            self._written.delete()
            self._delete(".puffin")
            raise
        finally:
            self._delete(".rows", ".pairs")
        self._native.count_files()
        self._native.count((report,))

    def _delete(self, *endings: str) -> None:
        """Deletes files of this try that lie right in the folder of the target's data."""
        folder, name = os.path.split(os.path.splitext(self._upsert.rows)[0])
        for file in os.listdir(folder) if os.path.isdir(folder) else ():
            if name in file and file.removesuffix(".crc").endswith(endings):
                os.unlink(os.path.join(folder, file))

    def _do(self, kind: str, upsert: Upsert, shares: Sequence[Share]) -> list[TaskReport]:
        stores: Stores = (self._source.store.properties, {})
        return accepted(run(self._pending.spark, kind, upsert.to_json(), shares, stores)) if shares else []

    def _reduced(self) -> TaskReport:
        files, commits = list(self._source.files), self._native.files.commits()
        if sum(file.rows or 0 for file in files) > MOST_ROWS or sum(file.size for file in files) > MOST_BYTES:
            raise NotNative(f"the batch has more than {MOST_ROWS:,} rows, or {MOST_BYTES >> 20} MB of files")
        # As Spark orders them: by the commit, then by the file's name; a task of Iceberg's has no order of its own.
        files.sort(key=lambda file: (commits[file.location], file.location.encode()))
        (report,) = self._do("reduce", self._upsert, [[astuple(file) for file in files]])
        return report

    def _changed(self, scan: JavaTableScan) -> _Change:
        """Writes the files of the change; `scan` reads those of the target that may hold a key of the batch."""
        table = self._pending.table
        if not self._rows:
            return _Change(table, ())
        tasks = plan_tasks(self._pending.spark, scan)
        scanned = scan_files(self._pending.spark, tasks, "target", MOST_FILES)
        found = [file.input(Store(), "target") for file in scanned]
        if any(offset is None for file in found for _, offset, _ in file.deletes):
            raise NotNative("files of the table have position deletes of the time when it had format v2")
        planned = {file.location: task for file, task in zip(found, tasks.toArray(), strict=True)}
        reports = self._do("match", self._matching(table), self._shares(found, scanned))
        vectors = [Vector(**vector) for share in reports for vector in share["vectors"]]
        pairs = [share["pairs"] for share in reports if share["pairs"] is not None]
        files = self._written.of(self._do("store", self._upsert, self._slices(pairs))).files
        return _vectored(_Change(table, files), self._written.name, vectors, planned)

    def _matching(self, table: JavaTable) -> Upsert:
        """The upsert whose tasks read the target: the keys, the order, and the ids of rows that were changed before."""
        names = dict.fromkeys((*self._keyed.keys, *([self._keyed.order] if self._keyed.order is not None else [])))
        kinds, fields = dict(self._upsert.work.program.columns), fields_of(table.schema())
        known, missing = {field["name"]: field["id"] for field in fields}, absent(table, fields)
        read = (*((name, kinds[name]) for name in names), (ROW_ID, "bigint"))
        ids = {name: known[name] for name in names} | {ROW_ID: ROW_ID_FIELD}
        lacking = (*(name for name in names if known[name] in missing), ROW_ID)
        work = Work(self._written.name, Program(read, (), read), ids, self._upsert.work.target, lacking)
        return replace(self._upsert, work=work)

    def _shares(self, files: list[InputFile], scanned: list[ScanFile]) -> list[Share]:
        first = {file.location: file.first_row for file in scanned}
        cores = self._pending.spark.sparkContext.defaultParallelism
        return [[(astuple(file), first[file.location]) for file in share] for share in shared(files, cores)]

    def _slices(self, pairs: list[str]) -> list[Share]:
        """Parts of the batch, one for each task that writes."""
        cores = self._pending.spark.sparkContext.defaultParallelism
        count = min(cores, -(-self._rows // TASK_ROWS))
        size = -(-self._rows // count)
        return [[(start, size, pairs)] for start in range(0, self._rows, size)]


@dataclass(frozen=True)
class _Change:
    """The files of an upsert.

    Attributes:
        table: The table.
        files: What the table's metadata says of the new data files, as JSON.
        added: The deletion vectors.
        removed: The deletes that these take the place of.
        referenced: The data files of the vectors.
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


def _vectored(
    change: _Change, name: str, vectors: Sequence[Vector], planned: Mapping[str, JavaFileScanTask]
) -> _Change:
    """A change with the deletion vectors, which Iceberg writes into one file."""
    if not vectors:
        return change
    jvm, table = classes(), change.table
    factory = jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 0, 0).operationId(name).suffix("deletes")
    made = factory.format(jvm.org.apache.iceberg.FileFormat.PUFFIN).build()
    writer = jvm.org.apache.iceberg.deletes.BaseDVFileWriter(made, until_scope_ends(_NothingBefore()))
    removed: list[JavaDeleteFile] = []
    for vector in vectors:
        task = planned[vector.location]
        file, deletes = task.file(), task.deletes()
        writer.delete(vector.location, _positions(vector), table.specs().get(file.specId()), file.partition())
        if int(deletes.size()):
            # Deletes for several data files stay, as with Iceberg's own writer: a file's vector takes precedence.
            scoped = jvm.org.apache.iceberg.util.ContentFileUtil.isFileScoped
            removed += [delete for delete in listed(deletes) if scoped(delete)]
    writer.close()
    result = writer.result()
    return replace(change, added=listed(result.deleteFiles()), removed=removed, referenced=result.referencedDataFiles())


def _positions(vector: Vector) -> object:
    """Iceberg's index of the positions that a task has found."""
    blob = base64.b64decode(vector.blob)
    # Only a delete file can be read: this describes one that is not there.
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
    """The bytes of a table's data files, from its newest commit; 0 if that does not say."""
    snapshot = table.currentSnapshot()
    return int(texts(snapshot.summary()).get("total-files-size", 0)) if snapshot is not None else 0


class _NothingBefore:
    """A `java.util.function.Function` that gives no earlier deletes: the tasks have added them already."""

    def apply(self, location: str) -> None:
        return None

    class Java:
        implements = ("java.util.function.Function",)
