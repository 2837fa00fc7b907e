"""Resolves the target tables of a pipeline and the jars that it needs, from its declaration, before it is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from helios.catalog.conf import checkpoint_components, components, folder_components, warehouse
from helios.catalog.names import Namespace, TableName
from helios.errors import InputError
from helios.model.flow import Pipeline, Sink, Source, flows
from helios.model.sink import IcebergSink
from helios.plan.context import Context
from helios.sources.kinds import source_kind


def quarantine_of(sink: IcebergSink, context: Context) -> TableName | None:
    """The table of rejected rows: in the catalog of the sink, unless its name begins with a declared catalog."""
    name = sink.quarantine_table
    if name is None:
        return None
    has_catalog = len(name.parts) > 2 and name.parts[0] in {**context.config.catalogs, **context.catalogs}
    catalog = None if has_catalog else sink.catalog
    return context.resolve(name, catalog, sink.origin)


def target_of(sink: IcebergSink, context: Context) -> TableName:
    """The table that a sink writes, or the namespace of a mirror's tables."""
    resolved = context.resolve(sink.table, sink.catalog, sink.origin)
    return Namespace(resolved.catalog, resolved.namespace, resolved.table) if sink.mirrors else resolved


def components_before_compiling(pipelines: Sequence[Pipeline], context: Context) -> tuple[str, ...]:
    """The jar components that pipelines need, from the names and folders that they declare.

    Names that cannot be resolved are skipped here.
    """
    jars: dict[str, None] = {}
    for pipeline in pipelines:
        nodes: list[Source | Sink] = [pipeline.sink, *(inner.source for inner in flows(pipeline.stream))]
        for node in nodes:
            try:
                jars |= dict.fromkeys(_components(node, context))
            except InputError:
                continue  # `compile_pipelines` reports the error
    return tuple(jars)


def _components(node: Source | Sink, context: Context) -> Iterator[str]:
    """The jar components of one source or sink."""
    if isinstance(node, Source):
        if node.reference is not None:
            yield from components(context.resolve(*node.reference, node.origin).catalog)
        folder = source_kind(node).store_folder(node, context)
        yield from (*source_kind(node).jars, *node.jars, *(folder_components(folder.location) if folder else ()))
    elif (sink := node.iceberg) is not None:
        target, quarantine = target_of(sink, context), quarantine_of(sink, context)
        for table in (target, quarantine):
            yield from components(table.catalog) if table is not None else ()
        yield from checkpoint_components(node.checkpoint_location or warehouse(target.catalog) or "")
    else:
        yield from node.jars
