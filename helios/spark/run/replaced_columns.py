"""Refuses batches after a column of a followed table, or of the target, was replaced by another one of the same name.

The former column was dropped and added again, or two columns have swapped their names.
"""

from __future__ import annotations

import json

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from helios.errors import InputError
from helios.plan.evolution.fields import sql_path
from helios.plan.nodes import ReadPlan
from helios.plan.typing.types import quoted
from helios.sources.iceberg.offsets import IcebergOffset
from helios.sources.iceberg.spark.reader import IcebergReader
from helios.spark.checkpoint.files import READ_SCHEMAS, Checkpoint
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.schema import names_by_id
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.job import Job
from helios.spark.sinks.table import TableSink
from helios.table.positions import Batch

MAX_KEPT = 3
"""The number of batches whose schemas are kept. A batch that failed is read again from the end of the one before it."""


def refuse_replaced_columns(job: Job, batch: Batch, rows: StructType) -> None:
    """Raises if values of a new source column would go into the target column, or the state, of a former source column.

    Field ids identify the columns of a source. The target has only the names of these columns.

    Args:
        rows: The columns of the batch's rows.

    Raises:
        InputError: A source column was replaced, or a column by which the target's rows are compared with the batch;
            the message names the column and the fix.
    """
    if not isinstance(job.sink, TableSink):
        return
    _refuse_replaced_keys(job, job.sink)
    for (index, source), span in zip(job.followed.items(), batch.spans, strict=False):
        start, end = IcebergOffset.of(span.start), IcebergOffset.of(span.end)
        if not isinstance(source, IcebergReader) or end is None or end.snapshot is None or end == start:
            continue
        table = source.last_loaded
        if len(table.schemas()) < 2:
            continue
        read_schemas = ReadSchemas(job.checkpoint, index)
        if start is not None and start.snapshot is not None and not start.is_beginning:
            for name, _ in _replaced(table, read_schemas.of(table, start.snapshot)):
                if job.stateful or job.plan.view is not None:
                    raise _state_error(job, source.read_plan, name)
                path = _path(_name_after_steps(job, name), rows)
                if path and _last_batch_wrote(job.sink, ".".join(path)):
                    raise _target_error(job, source.read_plan, name, path)
        read_schemas.keep(table, end.snapshot)


def _refuse_replaced_keys(job: Job, sink: TableSink) -> None:
    """Raises if a key or the order column of the target was replaced since the last batch.

    A column that was dropped and added again is accepted once no row has null there: rows with null match no key, or
    lose against late rows.
    """
    mode, record = job.plan.write.mode, sink.ledger.record_at_look_up
    if not mode.traits.keyed or record is None or record.snapshot is None:
        return
    names_now = names_by_id(sink.table.schema())
    replaced = {name.lower(): id for name, id in _replaced(sink.table, _schema_at(sink.table, record.snapshot))}
    for name in (*mode.keys, (mode.order_by or "").strip("` ")):
        written = replaced.get(name.lower())
        if written is None:
            continue
        if written in names_now:
            raise _moved_key_error(job, name, names_now[written])
        if _has_nulls(job, sink.table, name):
            raise _key_error(job, name)


def _has_nulls(job: Job, table: JavaTable, name: str) -> bool:
    branch = job.plan.write.sink.branch_name
    scan = table.newScan() if branch is None else table.newScan().useRef(branch)
    tasks = plan_tasks(job.spark, scan)
    has_files = tasks.size() > 0
    return has_files and not read_tasks(job.spark, table, tasks).where(F.col(quoted(name)).isNull()).isEmpty()


class ReadSchemas:
    """The schemas by which the batches of a source were read, for batches that end at a snapshot of an older schema.

    A batch is read by the current schema of the table. `helios/schemas/N.json` has the ids of these schemas, by the
    last snapshots of the batches.

    Args:
        index: The number of the source in the plan.
    """

    def __init__(self, checkpoint: Checkpoint, index: int) -> None:
        self._files = checkpoint.files
        self._name = f"{READ_SCHEMAS}/{index}.json"
        self._ids: dict[str, int] = self._files.read_json(self._name) or {}

    def of(self, table: JavaTable, snapshot: int) -> int | None:
        """The id of the schema that the batch up to a snapshot was read by; None if it is unknown."""
        return self._ids.get(str(snapshot), _schema_at(table, snapshot))

    def keep(self, table: JavaTable, snapshot: int) -> None:
        """Keeps the table's current schema as that of the batch up to a snapshot."""
        current = int(table.schema().schemaId())
        ids = {key: id for key, id in self._ids.items() if key != str(snapshot)}
        if _schema_at(table, snapshot) not in (None, current):
            ids[str(snapshot)] = current
        ids = dict([*ids.items()][-MAX_KEPT:])
        if ids != self._ids:
            self._files.write(self._name, json.dumps(ids))


def _name_after_steps(job: Job, name: str) -> str:
    """The name of a source's column or nested field after the steps; a column that a step computes keeps its name."""
    for step in job.plan.declared.stream.steps:
        first, dot, field = name.partition(".")
        renamed = step.name_after(name) or name
        name = renamed if renamed != name else (step.name_after(first) or first) + dot + field
    return name


def _path(name: str, rows: StructType) -> tuple[str, ...]:
    """The path of a column or a nested field; empty if the rows have no such column."""
    names = {field.name.lower() for field in rows.fields}
    path = (name,) if name.lower() in names else tuple(name.split("."))
    return path if path[0].lower() in names else ()


def _replaced(table: JavaTable, schema_id: int | None) -> list[tuple[str, int]]:
    """The columns of an earlier schema whose names other columns have now: their names and their field ids."""
    if schema_id in (None, int(table.schema().schemaId())):
        return []
    ids_now = {name.lower(): id for id, name in names_by_id(table.schema()).items()}
    return [(name, id) for name, id in _columns_of(table, schema_id) if ids_now.get(name.lower(), id) != id]


def _schema_at(table: JavaTable, snapshot: int) -> int | None:
    """The id of a snapshot's schema; None if the snapshot is gone."""
    kept = table.snapshot(snapshot)
    return kept.schemaId() if kept is not None else None


def _columns_of(table: JavaTable, schema_id: int | None) -> list[tuple[str, int]]:
    """The names and the field ids of a schema's columns; empty if the schema is gone."""
    schema = table.schemas().get(schema_id) if schema_id is not None else None
    return [(name, id) for id, name in names_by_id(schema).items()] if schema is not None else []


def _last_batch_wrote(sink: TableSink, name: str) -> bool:
    """True if the target still has the column that the last batch wrote under this name."""
    sink.table.refresh()
    ids_now = {column.lower(): id for id, column in names_by_id(sink.table.schema()).items()}
    if name.lower() not in ids_now:
        return False
    record = sink.last()
    if record is None or record.snapshot is None:
        return False
    columns_written = _columns_of(sink.table, _schema_at(sink.table, record.snapshot))
    ids_written = {column.lower(): id for column, id in columns_written}
    if ids_written:
        return ids_written.get(name.lower()) == ids_now[name.lower()]
    # The snapshot is gone: the column is the same if all schemas of the table have one id under its name.
    columns = [column for schema in sink.table.schemas().values() for column in names_by_id(schema).items()]
    return len({id for id, known in columns if known.lower() == name.lower()}) < 2


def _target_error(job: Job, read: ReadPlan, name: str, path: tuple[str, ...]) -> InputError:
    target, column = job.plan.write.table, sql_path(path)
    return InputError(
        f"{_what_changed(read, name)} {target.text} has values of the former column; nothing was written.",
        where=read.source.origin,
        fix=f"keep these values under another name, with ALTER TABLE {target.text} RENAME COLUMN {column} TO "
        f"{quoted(path[-1] + '_before')}, or drop them, with ALTER TABLE {target.text} DROP COLUMN {column}: the "
        "next run adds the new column. Or refill the target from the current source: `helios run --full-refresh`.",
    )


def _key_error(job: Job, name: str) -> InputError:
    target, column = job.plan.write.table.text, quoted(name)
    use = "match no key" if name in job.plan.write.mode.keys else "be replaced by late rows"
    return InputError(
        f"{name} of {target} is another column than the last batch of {job.plan.pipeline} has written: it was dropped "
        f"and added again, or another column has got its name. Rows with null there would {use}; nothing was written.",
        where=job.plan.declared.sink.origin,
        fix=f"fill the column in all rows, as with UPDATE {target} SET {column} = ... WHERE {column} IS NULL, or "
        "refill the target: `helios run --full-refresh`.",
    )


def _moved_key_error(job: Job, name: str, now: str) -> InputError:
    target = job.plan.write.table.text
    return InputError(
        f"{name} of {target} is another column than the last batch of {job.plan.pipeline} has written: the column that "
        f"it wrote is named {now} now. Rows would be compared by other values; nothing was written.",
        where=job.plan.declared.sink.origin,
        fix="rename the columns back, with ALTER TABLE ... RENAME COLUMN, or refill the target: "
        "`helios run --full-refresh`.",
    )


def _state_error(job: Job, read: ReadPlan, name: str) -> InputError:
    return InputError(
        f"{_what_changed(read, name)} The state of {job.plan.pipeline} has values of the former column; nothing was "
        "written.",
        where=read.source.origin,
        fix="recompute the state with `helios run --full-refresh`.",
    )


def _what_changed(read: ReadPlan, name: str) -> str:
    how = "it was dropped and added again, or another column has got its name."
    return f"{name} of {read.name} is another column than before: {how}"
