"""Opens the tables of a routed sink or a mirror, and refuses tables that were renamed or replaced since."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from helios.catalog.names import TableName
from helios.errors import CheckFailed, CheckpointError, InputError
from helios.model.columns import POSITION
from helios.plan.target import plan_existing
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.alignment import columns_of
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.table import TableSink, apply_layout, create, ensure_branch
from helios.table.ledger import Record


def open_table(context: SinkContext, name: TableName, table: JavaTable | None, df: DataFrame) -> TableSink:
    """Opens or creates a table whose name comes from its rows, after checks of its schema and of its record.

    Args:
        table: Iceberg's table object; None for a table to create.
        df: The rows; only their schema is used.

    Raises:
        CheckFailed: The rows do not fit the table, or its partitioning differs from the declared one.
        CheckpointError: The table holds rows that the pipeline wrote with another checkpoint, has lost its record, is
            gone, or was replaced or renamed.
        InputError: The table is missing, and the sink does not create tables.
    """
    sink, known = context.plan.write.iceberg, context.checkpoint.tables()
    is_new = table is None
    if name.text not in known:
        # If a user has removed the name from tables.json, the checkpoint still notes a batch of the former table.
        context.landings(name, sink.branch_name).forget()
    if table is not None:
        refuse_wrong_table(context, name, table)
    if table is None:
        if name.text in known:
            raise gone_error(context, name)
        if not sink.creates:
            raise InputError(f"table {name.text} does not exist.", where=sink.origin)
        claim = Record(checkpoint=context.checkpoint_id, steps=context.plan.fingerprint)
        table = create(context.spark, context.plan, name, df, {context.ledger_key: claim.as_json()})
    else:
        _, problems = plan_existing(replace(context.plan.write, table=name), columns_of(df.drop(POSITION).schema))
        if problems:
            raise CheckFailed(problems)
    ledger = context.ledger(table, sink.branch_name)
    record = ledger.load()
    is_own = record is not None and record.checkpoint == context.checkpoint_id
    if not is_own and (name.text in known or (record is not None and record.position is not None)):
        raise foreign_error(context, name)
    if not is_own:
        ledger.claim(Record(checkpoint=context.checkpoint_id, steps=context.plan.fingerprint))
    if name.text not in known:
        context.checkpoint.write_tables({**known, name.text: str(table.uuid())})
    if not is_new:
        apply_layout(context.spark, context.plan, table)
    elif sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
    return TableSink(context, name, table, sink.branch_name)


def gone_error(context: SinkContext, name: TableName) -> CheckpointError:
    """The error for a missing table to which rows were written."""
    kind = "mirrored" if context.plan.write.sink.mirrors else "routed"
    return CheckpointError(
        f"the {kind} table {name.text} is gone, with the rows of {context.plan.pipeline} that it held; nothing was "
        "written.",
        where=context.plan.write.sink.origin,
        fix=f"restore the table; or, to go on without those rows, take its name out of {context.checkpoint.location}/"
        "helios/tables.json: the next rows for this table then create it again.",
    )


def refuse_wrong_table(context: SinkContext, name: TableName, table: JavaTable) -> None:
    """Refuses a table that was renamed, or that replaced another one, since the pipeline wrote under its name."""
    known, id = context.checkpoint.tables(), str(table.uuid())
    file = f"{context.checkpoint.location}/helios/tables.json"
    where, pipeline = context.plan.write.sink.origin, context.plan.pipeline
    former = next((other for other, uuid in known.items() if uuid == id and other != name.text), None)
    if former is not None:
        raise CheckpointError(
            f"{name.text} is the table that {pipeline} knows as {former}: it was renamed, and rows would go into the "
            "wrong table; nothing was written.",
            where=where,
            fix=f"rename it back to {former}; or {context.restart_hint}.",
        )
    if known.get(name.text) not in (None, id):
        raise CheckpointError(
            f"{name.text} is another table than the one that {pipeline} wrote under that name (its UUID is {id}, and "
            f"was {known[name.text]}); nothing was written.",
            where=where,
            fix=f"restore the former table; or, to go on with the present one, take its name out of {file}.",
        )


def foreign_error(context: SinkContext, name: TableName) -> CheckpointError:
    """The error for a table that this checkpoint did not write."""
    return CheckpointError(
        f"{name.text} holds rows of {context.plan.pipeline} that another checkpoint wrote, or has lost its record "
        "of this checkpoint.",
        where=context.plan.write.sink.origin,
        fix=f"restore the checkpoint or the record, or {context.restart_hint}.",
    )
