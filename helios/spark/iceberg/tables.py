"""Iceberg's own table objects: loading, creating, and bringing one to what a sink declares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.catalog.names import TableName
from helios.model.partition import PartitionField
from helios.plan.checks.sinks import SortTerm
from helios.spark.iceberg import freshness
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_class


def load_table(spark: SparkSession, table: TableName) -> Any | None:
    """Iceberg's own table object; None when there is no such table.

    Raises:
        StaleReplica: This replica of the catalog shows less than was seen.
    """
    catalog, identifier = _catalog(spark, table)
    found = None
    try:
        found = catalog.loadTable(identifier)
    except Py4JJavaError as error:
        if java_class(error) not in ("NoSuchTableException", "NoSuchNamespaceException"):
            raise
    freshness.verify(table, found)
    return found


def create_table(
    spark: SparkSession,
    table: TableName,
    schema: StructType,
    properties: Mapping[str, str],
    *,
    partitioning: Sequence[PartitionField] = (),
    sort: Sequence[SortTerm] = (),
) -> Any:
    """Creates a table and its namespace; a table made by somebody else meanwhile is loaded.

    Args:
        spark: The session.
        table: Its name.
        schema: Its columns; all become optional.
        properties: Its properties, `format-version` among them.
        partitioning: Its partition fields.
        sort: Its sort order.
    """
    jvm = classes()
    catalog, identifier = _catalog(spark, table)
    namespace = identifier.namespace()
    try:
        if not catalog.namespaceExists(namespace):
            catalog.createNamespace(namespace)
    except Py4JJavaError:
        # A catalog tells of two that create at once in its own way: what counts is that the namespace is there.
        if not catalog.namespaceExists(namespace):
            raise
    java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    iceberg_schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(java_type)
    spec = jvm.org.apache.iceberg.PartitionSpec.builderFor(iceberg_schema).caseSensitive(False)
    for field in partitioning:
        spec = _partition(spec, field)
    builder = catalog.buildTable(identifier, iceberg_schema).withPartitionSpec(spec.build())
    if sort:
        order = jvm.org.apache.iceberg.SortOrder.builderFor(iceberg_schema).caseSensitive(False)
        builder = builder.withSortOrder(_sorted(jvm, order, sort).build())
    for key, value in properties.items():
        builder = builder.withProperty(key, value)
    try:
        return builder.create()
    except Py4JJavaError:
        if not catalog.tableExists(identifier):
            raise
        return catalog.loadTable(identifier)


def _partition(spec: Any, field: PartitionField) -> Any:
    method = getattr(spec, field.transform)
    return method(field.column) if field.width is None else method(field.column, field.width)


def _sorted(jvm: Any, order: Any, terms: Sequence[SortTerm]) -> Any:
    nulls = jvm.org.apache.iceberg.NullOrder
    for term in terms:
        add = order.desc if term.descending else order.asc
        column = jvm.org.apache.iceberg.expressions.Expressions.ref(term.by)
        order = add(column, nulls.NULLS_FIRST if term.nulls_first else nulls.NULLS_LAST)
    return order


def replace_partition_spec(spark: SparkSession, table: Any, partitioning: Sequence[PartitionField]) -> None:
    """Gives a table another partition spec for what is written from now on; one commit, and none when it has it."""
    jvm = classes()
    table.refresh()
    wanted = [_term(jvm, field) for field in partitioning]
    update = table.updateSpec().caseSensitive(False)
    fields = [f for f in listed(table.spec().fields()) if str(f.transform()) != "void"]
    now = {_show(table, field).lower(): str(field.name()) for field in fields}
    texts = [str(field).lower() for field in partitioning]
    if list(now) == texts:
        return
    for text, name in now.items():
        if text not in texts:
            update = update.removeField(name)
    for field, term in zip(partitioning, wanted, strict=True):
        if str(field).lower() not in now:
            update = update.addField(term)
    update.commit()


def _term(jvm: Any, field: PartitionField) -> Any:
    terms = jvm.org.apache.iceberg.expressions.Expressions
    if field.transform == "identity":
        return terms.ref(field.column)
    method = getattr(terms, field.transform)
    return method(field.column) if field.width is None else method(field.column, field.width)


def _show(table: Any, field: Any) -> str:
    """A field of a Java partition spec as `PartitionField` shows it."""
    transform, _, width = str(field.transform().toString()).rstrip("]").partition("[")
    column = str(table.schema().findColumnName(field.sourceId()))
    return str(PartitionField(transform, column, int(width) if width else None))


def replace_sort_order(spark: SparkSession, table: Any, terms: Sequence[SortTerm]) -> None:
    """Gives a table a sort order for what is written from now on; no commit when it has it."""
    jvm = classes()
    table.refresh()
    wanted = _sorted(
        jvm, jvm.org.apache.iceberg.SortOrder.builderFor(table.schema()).caseSensitive(False), terms
    ).build()
    if not table.sortOrder().sameOrder(wanted):
        _sorted(jvm, table.replaceSortOrder().caseSensitive(False), terms).commit()


def _catalog(spark: SparkSession, table: TableName) -> tuple[Any, Any]:
    jvm = classes()
    # The catalog manager reads the conf of the thread's active session, which only some calls set.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, table.catalog.name)
    gateway: Any = spark.sparkContext._gateway
    names = gateway.new_array(jvm.java.lang.String, len(table.namespace))
    for index, part in enumerate(table.namespace):
        names[index] = part
    namespace = jvm.org.apache.iceberg.catalog.Namespace.of(names)
    return catalog, jvm.org.apache.iceberg.catalog.TableIdentifier.of(namespace, table.table)


def spark_schema(spark: SparkSession, table: Any) -> StructType:
    """The Spark schema of an Iceberg table object."""
    jvm = classes()
    return StructType.fromJson(json.loads(jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema()).json()))
