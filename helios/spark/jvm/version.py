"""The JVM calls that differ between Spark versions: one entry for each version for which Iceberg has a runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaMap, JavaObject
from helios.spark.jvm.types.spark import JavaConnectorTable, JavaRelation


@dataclass(frozen=True, kw_only=True)
class SparkVersion:
    """The JVM calls of one Spark version.

    Attributes:
        connector_table: Creates the table that Spark reads and writes, from an Iceberg table and a branch (None for
            main). The Iceberg table may be a Python object that implements the Java interface.
        staged_table: Creates a table that reads the scan tasks that are staged under an id. The call may add an entry
            to the last argument, the map of the read options.
        relation: Creates a relation from a connector table and read options.
        pins_scans: Whether Helios must pin the scans of a table that Python implements to a snapshot.
        streaming_package: Returns the Java package that has `StreamingExecutionRelation` and `MetadataLogFileIndex`.
        checkpoint_class: The Java class that writes a checkpoint through Hadoop's `FileSystem`.
    """

    connector_table: Callable[[object, str | None], JavaConnectorTable]
    staged_table: Callable[[JavaTable, str, JavaMap[str, str]], JavaConnectorTable]
    relation: Callable[[JavaConnectorTable, JavaObject], JavaRelation]
    pins_scans: bool
    streaming_package: Callable[[], Any]
    checkpoint_class: str


def spark_minor(spark: SparkSession) -> str:
    """Spark's major.minor, such as "4.1"; it selects the Iceberg runtime."""
    return ".".join(spark.version.split(".")[:2])


def spark_version(spark: SparkSession) -> SparkVersion:
    """The JVM calls for the Spark version of a session."""
    return VERSIONS[spark_minor(spark)]


def _connector_table_40(table: object, branch: str | None) -> JavaConnectorTable:
    spark_table = classes().org.apache.iceberg.spark.source.SparkTable
    connector_table: JavaConnectorTable = spark_table(table, branch, False) if branch else spark_table(table, False)
    return connector_table


def _connector_table_41(table: object, branch: str | None) -> JavaConnectorTable:
    spark_table = classes().org.apache.iceberg.spark.source.SparkTable
    connector_table: JavaConnectorTable = spark_table.create(table, branch) if branch else spark_table(table)
    return connector_table


def _staged_table_40(table: JavaTable, task_set: str, options: JavaMap[str, str]) -> JavaConnectorTable:
    options.put("scan-task-set-id", task_set)
    connector_table: JavaConnectorTable = classes().org.apache.iceberg.spark.source.SparkTable(table, False)
    return connector_table


def _staged_table_41(table: JavaTable, task_set: str, options: JavaMap[str, str]) -> JavaConnectorTable:
    connector_table: JavaConnectorTable = classes().org.apache.iceberg.spark.source.SparkRewriteTable(table, task_set)
    return connector_table


def _relation_40(table: JavaConnectorTable, options: JavaObject) -> JavaRelation:
    none = classes().scala.Option.empty()
    relation = classes().org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    created: JavaRelation = relation.create(table, none, none, options)
    return created


def _relation_41(table: JavaConnectorTable, options: JavaObject) -> JavaRelation:
    none = classes().scala.Option.empty()
    relation = classes().org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    created: JavaRelation = relation.create(table, none, none, options, none)
    return created


VERSIONS: dict[str, SparkVersion] = {
    "4.0": SparkVersion(
        connector_table=_connector_table_40,
        staged_table=_staged_table_40,
        relation=_relation_40,
        pins_scans=False,  # Iceberg itself passes the branch to the scan of any table
        streaming_package=lambda: classes().org.apache.spark.sql.execution.streaming,
        checkpoint_class="org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
    ),
    "4.1": SparkVersion(
        connector_table=_connector_table_41,
        staged_table=_staged_table_41,
        relation=_relation_41,
        pins_scans=True,  # Iceberg pins only the scans of its own table class
        streaming_package=lambda: classes().org.apache.spark.sql.execution.streaming.runtime,
        checkpoint_class="org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    ),
}
