"""Reads row-level changes: the rows that each commit of a snapshot range inserted, deleted or updated.

The changes of a commit are computed from the data files that the commit touched. The rows of these files before and
after the commit are compared as multisets. A row on both sides was carried over, and is no change.

One pass covers all commits of a range. A file is read once for each set of deletes that applied to the file. Each row
of the file gets a label for every commit whose comparison needs the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import zip_longest

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from helios.model.columns import CHANGE_COLUMNS
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.spark.changelog_files import FileState, Label, TouchedFiles, ordinal_of, tasks
from helios.sources.iceberg.spark.offsets import commits_between
from helios.sources.iceberg.spark.snapshot import ROW_ID, read_state, source_table, vectorized_rows
from helios.sources.iceberg.spark.snapshot_reader import verify
from helios.spark.iceberg import scan_metrics
from helios.spark.iceberg.multiset import is_one_pair, net
from helios.spark.iceberg.scan_tasks import read_tasks
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.classes import classes
from helios.spark.jvm.inline import inline
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaTable

TYPE, ORDINAL, COMMIT = CHANGE_COLUMNS
INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER = "INSERT", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER"

FILE = "__helios_file"
LABELS = "__helios_labels"
SIGN = "__helios_sign"
PAIRED = "__helios_paired"
LABEL_TYPE = f"struct<{ORDINAL}: bigint, {COMMIT}: bigint, {SIGN}: int>"


def read_changes(
    spark: SparkSession, read: ReadPlan, after: int | None, to: int, keys: tuple[str, ...] = ()
) -> DataFrame:
    """The row-level changes of the commits in `(after, to]`, one change set per commit.

    Args:
        after: An ancestor of `to`; None to begin with the first commit of the table.
        keys: The columns by which the old and the new row of an update are paired. Without keys, the rows are paired by
            row lineage, if the table has it.

    Returns:
        The table's current columns, followed by `_change_type`, `_change_ordinal` and `_commit_snapshot_id`.

    Raises:
        InputError: The table has equality deletes; or `keys` is empty, and a commit of the range deleted rows by
            position in format v2.
        LedgerError: A snapshot of the range has expired, or `after` is not an ancestor of `to`.
    """
    table = source_table(spark, read)
    jvm = classes()
    oldest_first = list(commits_between(table, read, after, to))[::-1]
    touched = TouchedFiles(spark, table, read, oldest_first, keyed=bool(keys))
    fields = spark_schema(spark, table).fields
    lineage = not keys and bool(jvm.org.apache.iceberg.TableUtil.supportsRowLineage(table))
    parts = []
    if touched.appended:
        rows = _labelled(spark, read, table, touched.appended, [f.name for f in fields])
        parts.append(rows.withColumn(TYPE, F.lit(INSERT)))
    if touched.rewritten:
        row_id = (ROW_ID,) if lineage else ()
        rows = _labelled(spark, read, table, touched.rewritten, [*(f.name for f in fields), *row_id])
        parts.append(_change_rows(rows, fields, keys, lineage=lineage))
    if not parts:
        # No data has changed. The state before any snapshot has the columns of the table, and no rows.
        return _inserted(read_state(spark, read, None), 0, to)
    columns = [*(quoted(f.name) for f in fields), TYPE, ORDINAL, COMMIT]
    return reduce(DataFrame.unionAll, (part.select(*columns) for part in parts))


def state_as_changes(spark: SparkSession, read: ReadPlan, rows: DataFrame, snapshot: int) -> DataFrame:
    """The rows of the table at a snapshot, as inserts by the snapshot's commit.

    Args:
        rows: The rows, as `read_state` has read them.
        snapshot: The id of the snapshot.
    """
    commit = source_table(spark, read).snapshot(snapshot)
    assert commit is not None  # the rows of the snapshot were just read
    return _inserted(rows, ordinal_of(commit), snapshot)


def _inserted(rows: DataFrame, ordinal: int, snapshot: int) -> DataFrame:
    return rows.select(
        "*",
        F.lit(INSERT).alias(TYPE),
        F.lit(ordinal).cast("bigint").alias(ORDINAL),
        F.lit(snapshot).cast("bigint").alias(COMMIT),
    )


# reading the files


def _labelled(
    spark: SparkSession, read: ReadPlan, table: JavaTable, states: Iterable[FileState], columns: Sequence[str]
) -> DataFrame:
    """The rows of data files, with the columns of a label. If a file has several labels, its rows are repeated."""
    by_file: dict[tuple[bool, str], list[FileState]] = {}
    for state in states:
        by_file.setdefault((state.deleted, state.path), []).append(state)
    # A scanned row has the path of its file, but does not show which deletes were applied to the file. So a scan reads
    # each file with only one set of deletes.
    layers = [
        [state for state in layer if state is not None]
        for deleted in (False, True)
        for layer in zip_longest(*(states for (is_deleted, _), states in by_file.items() if is_deleted == deleted))
    ]
    return reduce(DataFrame.unionAll, (_layer(spark, read, table, layer, columns) for layer in layers))


def _layer(
    spark: SparkSession, read: ReadPlan, table: JavaTable, states: Sequence[FileState], columns: Sequence[str]
) -> DataFrame:
    """The labelled rows of file states. Each state is of another file."""
    files = tasks(spark, table, states)
    verify(spark, table, files, read)
    scan_metrics.record(scan_metrics.ScanMetrics(total=int(files.size()), matched=int(files.size())))
    rows = read_tasks(spark, table, files, vector_rows=vectorized_rows(read))
    if states[0].deleted:
        rows = rows.where(F.col("_deleted"))
    names = [quoted(name) for name in columns]
    distinct_labels = {tuple(state.labels) for state in states}
    if len(distinct_labels) == 1:
        [labels] = distinct_labels
        return rows.select(*names, F.inline(_label_array(labels)))
    label_lists = [
        [dict(zip((ORDINAL, COMMIT, SIGN), label, strict=True)) for label in state.labels] for state in states
    ]
    schema = f"{FILE} string, {LABELS} array<{LABEL_TYPE}>"
    by_path = F.broadcast(inline(spark, schema, {FILE: [state.path for state in states], LABELS: label_lists}))
    return rows.select(*names, F.col("_file").alias(FILE)).join(by_path, FILE).select(*names, F.inline(LABELS))


def _label_array(labels: Iterable[Label]) -> Column:
    values = [F.struct(*map(F.lit, label)) for label in labels]
    return F.array(*values).cast(f"array<{LABEL_TYPE}>")


# from labelled rows to changes


def _change_rows(rows: DataFrame, fields: Sequence[StructField], keys: Sequence[str], *, lineage: bool) -> DataFrame:
    """Compares the rows before and after each commit, and returns the changes with their types."""
    is_update = F.lit(False)
    if lineage:
        changed = net(rows, fields, (ORDINAL, COMMIT, ROW_ID), SIGN)
        changed = changed.withColumn(
            ROW_ID, F.when(is_one_pair([COMMIT, ROW_ID], SIGN) & F.col(ROW_ID).isNotNull(), F.col(ROW_ID))
        )
        # Writers without support for lineage give new ids to carried-over rows. So rows without a pair lose their ids,
        # and are compared by value.
        changed = net(changed, fields, (ORDINAL, COMMIT, ROW_ID), SIGN)
        is_update = F.col(ROW_ID).isNotNull()
    else:
        changed = net(rows, fields, (ORDINAL, COMMIT), SIGN)
        if keys:
            changed = changed.withColumn(PAIRED, is_one_pair([COMMIT, *keys], SIGN))
            is_update = F.col(PAIRED)
    removed = F.col(SIGN) < 0
    change_type = F.when(is_update, F.when(removed, UPDATE_BEFORE).otherwise(UPDATE_AFTER))
    change_type = change_type.otherwise(F.when(removed, DELETE).otherwise(INSERT))
    return changed.withColumn(TYPE, F.explode(F.array_repeat(change_type, F.abs(SIGN).cast("int"))))
