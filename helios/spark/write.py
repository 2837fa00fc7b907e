"""Writing a batch: Spark writes the data files, the ledger commits them.

Iceberg's Spark writer commits by itself, with no room for a validation or a second update in the same commit. Its
compaction, though, has the writer stage its files on the driver and commits them through the Java API
(`FileRewriteCoordinator`); a batch takes the same road, so that its data, stamps and record are one transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from helios.config import TableName
from helios.errors import CheckFailed, DeclarationError, HeliosError
from helios.model.partition import PartitionField
from helios.plan.plan import WritePlan
from helios.spark.ledger import java_class
from helios.spark.steps import quoted

WRITE_OPTIONS = {
    # Iceberg's default keeps a writer open per partition: 1 GB of heap ends at some 500 of them. Sorted rows need one.
    "fanout-enabled": "false",
}
ROW_LINEAGE = ("_row_id", "_last_updated_sequence_number")


@dataclass(frozen=True)
class Staged:
    """Data files that are written but in no snapshot."""

    table: Any
    files: list[Any]

    def discard(self) -> None:
        """Deletes the files, of a batch that turned out to be there already."""
        for file in self.files:
            self.table.io().deleteFile(file.location())


def load_table(spark: SparkSession, table: TableName) -> Any | None:
    """Iceberg's own table object; None when there is no such table."""
    catalog, identifier = _catalog(spark, table)
    try:
        return catalog.loadTable(identifier)
    except Py4JJavaError as error:
        if java_class(error) in ("NoSuchTableException", "NoSuchNamespaceException"):
            return None
        raise


def create_table(spark: SparkSession, write: WritePlan, schema: StructType, properties: Mapping[str, str]) -> Any:
    """Creates the namespace and the table that a plan names; a table made by somebody else meanwhile is loaded."""
    jvm: Any = spark._jvm
    catalog, identifier = _catalog(spark, write.table)
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
    spec = jvm.org.apache.iceberg.PartitionSpec.builderFor(iceberg_schema)
    for field in write.partitioning or ():
        spec = _partition(spec, field)
    builder = catalog.buildTable(identifier, iceberg_schema).withPartitionSpec(spec.build())
    for key, value in {"format-version": str(write.format_version), **dict(write.properties), **properties}.items():
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


def _catalog(spark: SparkSession, table: TableName) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    # The catalog manager reads the conf of the thread's active session, which only some calls set.
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, table.catalog.name)
    gateway: Any = spark.sparkContext._gateway
    names = gateway.new_array(jvm.java.lang.String, len(table.namespace))
    for index, part in enumerate(table.namespace):
        names[index] = part
    namespace = jvm.org.apache.iceberg.catalog.Namespace.of(names)
    return catalog, jvm.org.apache.iceberg.catalog.TableIdentifier.of(namespace, table.table)


def align(df: DataFrame, write: WritePlan, target: StructType, where: Any) -> DataFrame:
    """The batch with exactly the target's columns: matched by name without regard to case, missing ones null.

    Raises:
        CheckFailed: The batch has columns that the target lacks; they are never dropped silently.
    """
    theirs = {field.name.lower() for field in target.fields}
    extra = [f for f in df.schema.fields if f.name.lower() not in theirs]
    if extra:
        problem: HeliosError = DeclarationError(
            f"the stream carries columns that {write.table.text} does not have: "
            + ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in extra)
            + f". The table has: {', '.join(target.names)}.",
            where=where,
            fix=f'add them to the table, or leave them out with drop("{extra[0].name}").',
        )
        raise CheckFailed([problem])
    ours = {name.lower(): name for name in df.columns}
    return df.select(
        *[
            F.col(quoted(ours[f.name.lower()])).alias(f.name)
            if f.name.lower() in ours
            else F.lit(None).cast(f.dataType).alias(f.name)
            for f in target.fields
        ]
    )


def target_schema(spark: SparkSession, table: Any) -> StructType:
    """The Spark schema of an Iceberg table object."""
    jvm: Any = spark._jvm
    return StructType.fromJson(_json(jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema()).json()))


def _json(text: str) -> dict[str, Any]:
    import json

    value: dict[str, Any] = json.loads(text)
    return value


def stage(df: DataFrame, table: Any, name: TableName) -> Staged:
    """Writes a batch's data files without committing them.

    Args:
        df: The batch, aligned with the table.
        table: Iceberg's table object.
        name: The table's name.
    """
    spark = df.sparkSession
    jvm: Any = spark._jvm
    group = str(uuid.uuid4())
    minor = ".".join(spark.version.split(".")[:2])
    coordinator = jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
    STAGING[minor](df, table, name, group)
    try:
        return Staged(table, list(coordinator.fetchNewFiles(table, group)))
    finally:
        coordinator.clearRewrite(table, group)


def _stage_by_cache(df: DataFrame, table: Any, _: TableName, group: str) -> None:
    jvm: Any = df.sparkSession._jvm
    # The class has a static get() and a get(key), and py4j looks at whichever the JVM lists first: name the static one.
    gateway: Any = df.sparkSession.sparkContext._gateway
    name = f"{STATIC_PREFIX}org.apache.iceberg.spark.SparkTableCache"
    cache = JavaMember("get", None, name, gateway._gateway_client)()
    cache.add(group, table)
    if jvm.org.apache.iceberg.TableUtil.supportsRowLineage(table):
        # A rewrite keeps its rows' lineage; new rows have none yet, and nulls inherit it from the commit.
        df = df.select("*", *[F.lit(None).cast("bigint").alias(column) for column in ROW_LINEAGE])
    try:
        df.write.format("iceberg").mode("append").options(**WRITE_OPTIONS).save(group)
    finally:
        cache.remove(group)


def _stage_by_option(df: DataFrame, table: Any, name: TableName, group: str) -> None:
    df.writeTo(name.sql).options(**WRITE_OPTIONS, **{"rewritten-file-scan-task-set-id": group}).append()


STAGING: dict[str, Callable[[DataFrame, Any, TableName, str], None]] = {
    "4.0": _stage_by_option,
    "4.1": _stage_by_cache,
}
"""How Iceberg's writer for each Spark version is told to stage (SparkRewriteTable since 4.1)."""
