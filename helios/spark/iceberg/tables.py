"""Loads and creates Iceberg tables, and sets their partition specs and sort orders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.catalog.names import Namespace, TableName
from helios.errors import RunError
from helios.model.partition import PartitionField
from helios.plan.checks.sinks import SortTerm
from helios.spark.iceberg import freshness
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_class
from helios.spark.jvm.types.iceberg import (
    JavaCatalog,
    JavaPartitionField,
    JavaPartitionSpecBuilder,
    JavaSchema,
    JavaSnapshot,
    JavaTable,
    JavaTableIdentifier,
)
from helios.spark.jvm.types.updates import JavaNewSortOrder, JavaSortOrderBuilder, JavaTerm

Order = TypeVar("Order", bound=JavaSortOrderBuilder)


def load_table(spark: SparkSession, table: TableName) -> JavaTable | None:
    """Iceberg's table object; None when there is no such table.

    Raises:
        StaleReplica: This replica of the catalog shows an older state than the run has seen.
    """
    catalog, identifier = catalog_of(spark, table)
    loaded: JavaTable | None = None
    try:
        loaded = catalog.loadTable(identifier)
    except Py4JJavaError as error:
        if java_class(error) not in ("NoSuchTableException", "NoSuchNamespaceException"):
            raise
    freshness.verify(table, loaded)
    return loaded


def create_table(
    spark: SparkSession,
    table: TableName,
    schema: StructType,
    properties: Mapping[str, str],
    *,
    partitioning: Sequence[PartitionField] = (),
    sort: Sequence[SortTerm] = (),
) -> JavaTable:
    """Creates a table, and its namespace if that is missing; loads the table if another client has just created it.

    Args:
        schema: Its columns; all become optional.
        properties: Its properties, including `format-version`.
    """
    jvm = classes()
    catalog, identifier = catalog_of(spark, table)
    namespace = identifier.namespace()
    try:
        if not catalog.namespaceExists(namespace):
            catalog.createNamespace(namespace)
    except Py4JJavaError:
        # If two clients create a namespace at once, the errors differ between catalogs. Only its existence matters.
        if not catalog.namespaceExists(namespace):
            raise
    java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    iceberg_schema: JavaSchema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(java_type)
    spec: JavaPartitionSpecBuilder = jvm.org.apache.iceberg.PartitionSpec.builderFor(iceberg_schema)
    spec = spec.caseSensitive(False)
    for field in partitioning:
        spec = _add_partition_field(spec, field)
    builder = catalog.buildTable(identifier, iceberg_schema).withPartitionSpec(spec.build())
    if sort:
        builder = builder.withSortOrder(_add_sort_terms(_new_sort_order(iceberg_schema), sort).build())
    for key, value in properties.items():
        builder = builder.withProperty(key, value)
    try:
        return builder.create()
    except Py4JJavaError:
        if not catalog.tableExists(identifier):
            raise
        return catalog.loadTable(identifier)


def _add_partition_field(spec: JavaPartitionSpecBuilder, field: PartitionField) -> JavaPartitionSpecBuilder:
    add = getattr(spec, field.transform)
    added: JavaPartitionSpecBuilder = add(field.column) if field.width is None else add(field.column, field.width)
    return added


def _new_sort_order(schema: JavaSchema) -> JavaNewSortOrder:
    order: JavaNewSortOrder = classes().org.apache.iceberg.SortOrder.builderFor(schema)
    return order.caseSensitive(False)


def _add_sort_terms(order: Order, terms: Sequence[SortTerm]) -> Order:
    jvm = classes()
    nulls = jvm.org.apache.iceberg.NullOrder
    for term in terms:
        add = order.desc if term.descending else order.asc
        column = jvm.org.apache.iceberg.expressions.Expressions.ref(term.by)
        order = add(column, nulls.NULLS_FIRST if term.nulls_first else nulls.NULLS_LAST)
    return order


def replace_partition_spec(spark: SparkSession, table: JavaTable, partitioning: Sequence[PartitionField]) -> None:
    """Sets a table's partition spec for future writes; commits nothing if the table has that spec already."""
    table.refresh()
    update = table.updateSpec().caseSensitive(False)
    fields = [f for f in listed(table.spec().fields()) if not f.transform().isVoid()]
    present = {_partition_text(table, field).lower(): str(field.name()) for field in fields}
    wanted = {str(field).lower(): field for field in partitioning}
    if list(present) == list(wanted):
        return
    for text, name in present.items():
        if text not in wanted:
            update = update.removeField(name)
    for text, field in wanted.items():
        if text not in present:
            update = update.addField(_partition_term(field))
    update.commit()


def _partition_term(field: PartitionField) -> JavaTerm:
    terms = classes().org.apache.iceberg.expressions.Expressions
    if field.transform == "identity":
        reference: JavaTerm = terms.ref(field.column)
        return reference
    make = getattr(terms, field.transform)
    term: JavaTerm = make(field.column) if field.width is None else make(field.column, field.width)
    return term


def _partition_text(table: JavaTable, field: JavaPartitionField) -> str:
    """A field of a Java partition spec as text, in the form of `str(PartitionField)`."""
    transform, _, width = str(field.transform().toString()).rstrip("]").partition("[")
    column = str(table.schema().findColumnName(field.sourceId()))
    return str(PartitionField(transform, column, int(width) if width else None))


def replace_sort_order(spark: SparkSession, table: JavaTable, terms: Sequence[SortTerm]) -> None:
    """Sets a table's sort order for future writes; commits nothing if the table has that order already."""
    table.refresh()
    wanted = _add_sort_terms(_new_sort_order(table.schema()), terms).build()
    if not table.sortOrder().sameOrder(wanted):
        _add_sort_terms(table.replaceSortOrder().caseSensitive(False), terms).commit()


def catalog_of(spark: SparkSession, table: TableName) -> tuple[JavaCatalog, JavaTableIdentifier]:
    """Iceberg's catalog object of a session, and a table's identifier in it."""
    jvm = classes()
    # Spark's catalog manager reads the conf of the active session of this thread, which is not always set.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, table.catalog.name)
    # JSON, because a name may have any character.
    name = json.dumps({"namespace": table.namespace, "name": table.table})
    return catalog, jvm.org.apache.iceberg.catalog.TableIdentifierParser.fromJson(name)


def tables_with_prefix(spark: SparkSession, table: TableName) -> list[TableName]:
    """The tables whose names begin with the name of `table` and `_`; if `table` is a namespace, all of its tables."""
    catalog, identifier = catalog_of(spark, table)
    if not catalog.namespaceExists(identifier.namespace()):
        return []
    names = [str(name.name()) for name in listed(catalog.listTables(identifier.namespace()))]
    prefix = "" if isinstance(table, Namespace) else f"{table.table}_"
    return [TableName(table.catalog, table.namespace, name) for name in names if name.startswith(prefix)]


def spark_schema(spark: SparkSession, table: JavaTable) -> StructType:
    converted = classes().org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    return StructType.fromJson(json.loads(converted.json()))


def head(table: JavaTable, branch: str | None) -> JavaSnapshot | None:
    """The newest snapshot of a branch (None: main); None for an empty branch. Raises RunError for a missing one."""
    if branch is None:
        return table.currentSnapshot()
    ref = table.refs().get(branch)
    if ref is None:
        raise RunError(
            f"{table.name()} has no branch {branch!r} any more.",
            fix="create the branch again at its last snapshot, or give the pipeline a new name and let it use another "
            "branch.",
        )
    return table.snapshot(ref.snapshotId())
