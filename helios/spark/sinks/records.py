"""Finds the record and the stamped names of a pipeline that has had several names."""

from __future__ import annotations

from collections.abc import Iterable

from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, parse_record
from helios.table.refs import LEDGER


def newest_record(table: JavaTable, pipelines: Iterable[str], branch: str | None = None) -> Record | None:
    """The record of a pipeline in a table, by its own name or a former one; None if there is none.

    The table properties under all names are tried first, and only then the entries in snapshot summaries (the stamps),
    which may be older than a rename.
    """
    ledgers = [Ledger(table, name, "", "", branch) for name in pipelines]
    with_property = (ledger for ledger in ledgers if table.properties().get(ledger.key) is not None)
    records = (ledger.load() for ledger in (*with_property, *ledgers))
    return next((record for record in records if record is not None), None)


def names_of(table: JavaTable, names: Iterable[str | None], record: Record | None) -> set[str]:
    """The names under which the stamps of a pipeline may be found.

    A former name is left out if another pipeline now has this name, and writes the same branch.

    `names` are the pipeline's own name, and the former name that it declares.
    """
    former: set[str] = set()
    for name in record.formerly if record is not None else ():
        text = table.properties().get(LEDGER + name)
        # A former name still counts if its present owner writes another branch: stamps with this name may have come
        # into the record's branch when that other branch was published.
        if record is not None and (
            text is None or parse_record(text, LEDGER + name, table.name()).branch != record.branch
        ):
            former.add(name)
    return {name for name in names if name} | former
