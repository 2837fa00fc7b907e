"""Checks of `Iceberg.mirror(...)`: its source must be the changes of a database, without steps."""

from __future__ import annotations

from collections.abc import Iterator

from helios.catalog.catalogs import CATALOGS
from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Pipeline
from helios.model.sink import IcebergSink
from helios.model.target import TargetKind


def mirror_problems(pipeline: Pipeline, sink: IcebergSink) -> Iterator[HeliosError]:
    """The problems of a mirror's source and steps."""
    source, steps = pipeline.stream.source, pipeline.stream.steps
    if not source.names_tables:
        yield DeclarationError(
            f"{sink.label()} takes the changes of Cdc.debezium(), which name their tables; the rows of "
            f"{source.label()} do not.",
            where=sink.origin,
            fix='write Cdc.debezium(Kafka.source(pattern="shop.public.*").servers(...)) >> '
            "Iceberg.mirror(...), or write one table: Iceberg.sink(...).",
        )
    arguments = {"key": source.carried_keys, "schema": source.declared_schema}
    for name in (name for name, value in arguments.items() if value and source.names_tables):
        yield DeclarationError(
            f"Cdc.debezium({name}=): each table of {sink.label()} has its own columns and key, from its records.",
            where=source.origin,
            fix=f"leave {name}= out, or give the table that needs it a pipeline of its own.",
        )
    if steps:
        yield DeclarationError(
            f"{steps[0].text()}: {sink.label()} writes many tables, each with its own columns, and no step fits all.",
            where=steps[0].origin,
            fix="leave the step out, or give the table that needs it a pipeline of its own: "
            "Cdc.debezium(...) >> where(...) >> Iceberg.sink(...).upsert().",
        )


def atomic_problems(sink: IcebergSink, catalog: Catalog) -> Iterator[HeliosError]:
    """The problem of `atomic=True` with a catalog that cannot change several tables in one commit."""
    row = CATALOGS[catalog.type]
    if sink.target_kind is TargetKind.ATOMIC_MIRROR and not row.atomic:
        atomic_types = ", ".join(name for name, row in CATALOGS.items() if row.atomic)
        yield DeclarationError(
            f"{sink.label()}: atomic=True needs a catalog that changes several tables in one commit, and "
            f"{catalog.name!r} is of the type {catalog.type}: {row.not_atomic}.",
            where=sink.origin,
            fix=f"leave atomic=True out: each table is then written exactly once by itself; or mirror into a catalog "
            f"of the type {atomic_types}.",
        )
