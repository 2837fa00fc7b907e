"""Renames a table, and its name in the records and checkpoints of its pipelines, and in rejected rows.

Pipelines that read the table, or write it under names of their own, find it by its UUID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.conf import default_checkpoint
from helios.catalog.names import TableName
from helios.catalog.operations import missing_table
from helios.errors import InputError, LeaseError, RunError
from helios.model.values import caller
from helios.spark.checkpoint.files import Checkpoint, Identity
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg.tables import load_table, spark_schema
from helios.spark.jvm.classes import listed
from helios.spark.jvm.errors import java_message
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.renamed import move_checkpoint
from helios.spark.sinks.audit import rename_audit
from helios.spark.sinks.quarantine import NAMES
from helios.spark.sinks.quarantined import rename_rows
from helios.table.ledger import parse_record
from helios.table.refs import BACKFILL, LEDGER, OWN_SUFFIXES, REPLAY


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """The result of a rename.

    Attributes:
        table: The former name.
        to: The new name.
        pipelines: The new names of the pipelines that are named after the table.
        checkpoints: The new locations of the checkpoints that were moved.
        quarantines: The tables in which their rejected rows have the new name.
    """

    table: str
    to: str
    pipelines: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    quarantines: tuple[str, ...] = ()


def rename(spark: SparkSession, old: TableName, new: TableName, others: Sequence[TableName] = ()) -> Renamed:
    """Renames a table. If a step of the rename fails, the steps before it are undone.

    If the process is killed, another call with the same names finishes the rename.

    Args:
        new: The new name, in the same catalog.
        others: The other tables of the catalog. Quarantines among them may have rows of the table's pipelines.

    Raises:
        InputError: There is no such table, or the new name is taken.
        LeaseError: A pipeline of the table runs.
        RunError: The catalog refuses the name.
    """
    table = load_table(spark, old)
    pipelines = _named_after(load_table(spark, new) if table is None else table, old.text)
    if table is None and not pipelines:
        raise missing_table(old.catalog, old.name_in_catalog, caller())
    if table is not None and load_table(spark, new) is not None:
        raise InputError(f"{new.text} exists already.", fix="choose another name, or drop that table first.")
    names = {name: f"{new.text}{name.removeprefix(old.text)}" for name in pipelines}
    planned = (_planned_move(spark, (old, new), name, to) for name, to in names.items())
    moves = [move for move in planned if move is not None]
    quarantines = [other for other in others if names and _has_records(spark, other, names)]
    # The renamed table comes last, because its records under the former name show that a rename was interrupted.
    with_records = [*quarantines, new] if names else []
    with ExitStack() as undo:
        if table is not None:
            _rename_table(spark, old, new)
            undo.callback(_rename_table, spark, new, old)
        for move in moves:
            move.make(undo)
        for each in with_records:
            _rename_pipelines_in(spark, each, names, undo)
        undo.pop_all()
    return Renamed(
        table=old.text,
        to=new.text,
        pipelines=tuple(names.values()),
        checkpoints=tuple(move.after.location for move in moves),
        quarantines=tuple(other.text for other in quarantines),
    )


def _named_after(table: JavaTable | None, name: str) -> list[str]:
    """The pipelines of a table that are named after the table or one of its branches."""
    keys = [str(key).removeprefix(LEDGER) for key in listed(table.properties().keySet())] if table is not None else []
    return sorted(
        key for key in keys if key == name or (key.startswith(f"{name}@") and not key.endswith((REPLAY, BACKFILL)))
    )


@dataclass(frozen=True)
class _Move:
    """The move of a pipeline's checkpoint to the location for the pipeline's new name.

    Attributes:
        identity: The identity before the move.
        pipeline: The new name of the pipeline.
        targets: The former and the new name of the target with its branch, which some files of the checkpoint carry.
        table: The new name of the table.
    """

    before: Checkpoint
    after: Checkpoint
    identity: Identity
    pipeline: str
    targets: tuple[str, str]
    table: str

    def make(self, undo: ExitStack) -> None:
        if self.before.identity() is not None:
            move_checkpoint(self.before, self.after)
            undo.callback(self.after.move, self.before)
        self.after.rename_target(*self.targets)
        undo.callback(self.after.rename_target, *reversed(self.targets))
        self.after.create(replace(self.identity, pipeline=self.pipeline, target=self.table))
        undo.callback(self.after.create, self.identity)
        undo.callback(self.before.files.delete, "helios")
        # With this file, a script with the former name is refused. Without the file, that script would start over.
        self.before.write_new_name(self.table)


def _planned_move(spark: SparkSession, tables: tuple[TableName, TableName], name: str, to: str) -> _Move | None:
    """The planned move of a pipeline's checkpoint; None if the default location has no checkpoint of the pipeline.

    Raises:
        InputError: The new location has a checkpoint already.
        LeaseError: The pipeline runs.
    """
    old, new = tables
    location = default_checkpoint(old.catalog, name)
    if not location:
        return None
    before, after = Checkpoint(spark, location), Checkpoint(spark, default_checkpoint(old.catalog, to))
    identity, moved = before.identity(), after.identity()
    if identity is not None and identity.pipeline == name and moved is not None:
        raise InputError(
            f"{after.location} is the checkpoint of {to} already; nothing was renamed.",
            fix="move that folder away if its pipeline is gone, or choose another name.",
        )
    identity = identity or moved  # an interrupted rename has moved the checkpoint
    if identity is None or identity.pipeline != name:
        return None
    lease = Lease(after if moved is not None else before)
    try:
        lease.acquire()
    except LeaseError as error:
        error.fix = f"stop {name}, and repeat the command."
        raise
    lease.release()
    branch = name.removeprefix(old.text)  # "@branch", or empty
    return _Move(before, after, identity, to, (f"{old.text}{branch}", f"{new.text}{branch}"), new.text)


def _rename_table(spark: SparkSession, old: TableName, new: TableName) -> None:
    try:
        spark.sql(f"ALTER TABLE {old.sql} RENAME TO {new.sql_name_in_catalog}")
    except (PySparkException, Py4JJavaError) as error:
        why = java_message(error) if isinstance(error, Py4JJavaError) else str(error)
        raise RunError(
            f"the catalog {old.catalog.name} does not rename {old.text} to {new.name_in_catalog}: "
            f"{why.splitlines()[0]}",
            fix="check that the namespace exists and that the catalog renames tables.",
        ) from error


def _rename_pipelines_in(spark: SparkSession, name: TableName, names: dict[str, str], undo: ExitStack) -> None:
    """Renames pipelines in the records of a table, and in its rows if the table is a quarantine."""
    table = load_table(spark, name)
    if table is None:
        return
    if {"pipeline", *NAMES} <= {field.lower() for field in spark_schema(spark, table).names}:
        for was, pipeline in names.items():
            rename_rows(spark, name, was, pipeline)
            undo.callback(rename_rows, spark, name, pipeline, was)
    for was, pipeline in names.items():
        rename_audit(table, was, pipeline)
        undo.callback(rename_audit, table, pipeline, was)
    before = {key: table.properties().get(key) for was, to in names.items() for key in _record_properties(was, to)}
    _set_properties(table, dict(_renamed_records(table, names)))
    undo.callback(_set_properties, table, before)


def _has_records(spark: SparkSession, name: TableName, names: dict[str, str]) -> bool:
    table = load_table(spark, name)
    return table is not None and any(table.properties().get(LEDGER + was) is not None for was in names)


def _record_properties(was: str, to: str) -> list[str]:
    return [f"{LEDGER}{name}{suffix}" for name in (was, to) for suffix in OWN_SUFFIXES]


def _renamed_records(table: JavaTable, names: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """The properties for the records of renamed pipelines, their replays and backfills; None for removed properties."""
    properties = table.properties()
    for was, to in names.items():
        for suffix in OWN_SUFFIXES:
            old, new = f"{LEDGER}{was}{suffix}", f"{LEDGER}{to}{suffix}"
            text = properties.get(old)
            if text is None:
                continue
            yield old, None
            record, newer_text = parse_record(text, old, table.name()), properties.get(new)
            is_record = not suffix  # not the record of a replay or a backfill
            if newer_text is None:
                yield new, (record.renamed(was) if is_record else record).as_json()
            elif is_record:  # the pipeline has run under the new name already, so the record there is newer
                newer = parse_record(newer_text, new, table.name())
                beside = tuple(dict.fromkeys((*record.beside, *newer.beside)))
                yield new, replace(newer.renamed(was), beside=beside).as_json()


def _set_properties(table: JavaTable, properties: Mapping[str, str | None]) -> None:
    """Sets properties, and removes those without a value, in one commit."""
    table.refresh()
    update = table.updateProperties()
    for key, text in properties.items():
        update = update.set(key, text) if text is not None else update.remove(key)
    update.commit()
