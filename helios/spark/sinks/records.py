"""The records of a pipeline that has had several names."""

from __future__ import annotations

from collections.abc import Iterable

from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record
from helios.table.refs import LEDGER


def newest_record(table: JavaTable, pipelines: Iterable[str], branch: str | None = None) -> Record | None:
    """The record of a pipeline in a table, by its own name or a former one; None where there is none.

    The properties of all names come before stamps, which may be of a time before a rename.
    """
    ledgers = [Ledger(table, name, "", "", branch) for name in pipelines]
    kept = (ledger for ledger in ledgers if table.properties().get(ledger.key) is not None)
    records = (ledger.load() for ledger in (*kept, *ledgers))
    return next((record for record in records if record is not None), None)


def names_of(table: JavaTable, names: Iterable[str | None], record: Record | None) -> set[str]:
    """The names by which a pipeline's snapshots know it; a former one counts until another pipeline goes by it.

    Args:
        table: The table.
        names: The pipeline's own name, and the former one that it gives.
        record: Its record; None without one.
    """
    formerly = record.formerly if record is not None else ()
    free = (name for name in formerly if table.properties().get(LEDGER + name) is None)
    return {name for name in (*names, *free) if name}
