"""The quarantines of a pipeline: the declared one, and former ones that may still hold its rows."""

from __future__ import annotations

from dataclasses import replace

from helios.catalog.names import TableName
from helios.model.values import Identifier
from helios.plan.nodes import Plan
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.quarantine import QuarantineSink
from helios.table.ledger import Record


def with_quarantine(plan: Plan, record: Record) -> Record:
    """The record of a pipeline, with the quarantine that its script names."""
    name = plan.write.quarantine
    if name is None or name.text in record.quarantines:
        return record
    return replace(record, quarantines=(*record.quarantines, name.text))


def former_quarantines(plan: Plan, record: Record | None) -> list[TableName]:
    """The quarantines that earlier scripts named, if the current script names their catalogs."""
    current = plan.write.quarantine
    named = [plan.write.table, *([current] if current is not None else []), *(r.table for r in plan.reads if r.table)]
    catalogs = {table.catalog.name: table.catalog for table in named}
    known = record.quarantines if record is not None else ()
    parts = [Identifier.parse(name).parts for name in known if current is None or name != current.text]
    return [TableName(catalogs[first], tuple(rest[:-1]), rest[-1]) for first, *rest in parts if first in catalogs]


def quarantines(context: SinkContext, record: Record | None) -> list[QuarantineSink]:
    """The script's quarantine, if it names one, and those that earlier scripts named."""
    current = QuarantineSink.of(context)
    former = [QuarantineSink(context, name) for name in former_quarantines(context.plan, record)]
    return [*([current] if current is not None else []), *former]
