"""The JVM calls that differ between the Spark versions that Iceberg has a runtime for, one row for each version."""

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
        connector_table: Makes the table that Spark reads and writes, from an Iceberg table and a branch (None for
            main). Python may implement the Iceberg table.
        staged_table: Makes the table that reads the scan tasks staged under an id; may add read options.
        relation: Makes a relation of a connector table and read options.
        pins_scans: Whether scans of a table that Python implements have to be pinned to a snapshot.
        streams: The package of Spark's running streams, with their logical plans and the logs of their files.
        plain_checkpoint: The class by which Spark writes a checkpoint through Hadoop's `FileSystem`.
    """

    connector_table: Callable[[object, str | None], JavaConnectorTable]
    staged_table: Callable[[JavaTable, str, JavaMap[str, str]], JavaConnectorTable]
    relation: Callable[[JavaConnectorTable, JavaObject], JavaRelation]
    pins_scans: bool
    streams: Callable[[], Any]
    plain_checkpoint: str


def spark_minor(spark: SparkSession) -> str:
    """Spark's major.minor, such as "4.1"; it selects the Iceberg runtime."""
    return ".".join(spark.version.split(".")[:2])


def spark_version(spark: SparkSession) -> SparkVersion:
    """The calls of a session's Spark version."""
    return VERSIONS[spark_minor(spark)]


def _connector_table_40(table: object, branch: str | None) -> JavaConnectorTable:
    spark_table = classes().org.apache.iceberg.spark.source.SparkTable
    made: JavaConnectorTable = spark_table(table, branch, False) if branch else spark_table(table, False)
    return made


def _connector_table_41(table: object, branch: str | None) -> JavaConnectorTable:
    spark_table = classes().org.apache.iceberg.spark.source.SparkTable
    made: JavaConnectorTable = spark_table.create(table, branch) if branch else spark_table(table)
    return made


def _staged_table_40(table: JavaTable, tasks: str, options: JavaMap[str, str]) -> JavaConnectorTable:
    options.put("scan-task-set-id", tasks)
    made: JavaConnectorTable = classes().org.apache.iceberg.spark.source.SparkTable(table, False)
    return made


def _staged_table_41(table: JavaTable, tasks: str, options: JavaMap[str, str]) -> JavaConnectorTable:
    made: JavaConnectorTable = classes().org.apache.iceberg.spark.source.SparkRewriteTable(table, tasks)
    return made


def _relation_40(table: JavaConnectorTable, options: JavaObject) -> JavaRelation:
    none = classes().scala.Option.empty()
    relation = classes().org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    made: JavaRelation = relation.create(table, none, none, options)
    return made


def _relation_41(table: JavaConnectorTable, options: JavaObject) -> JavaRelation:
    none = classes().scala.Option.empty()
    relation = classes().org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    made: JavaRelation = relation.create(table, none, none, options, none)
    return made


VERSIONS: dict[str, SparkVersion] = {
    "4.0": SparkVersion(
        connector_table=_connector_table_40,
        staged_table=_staged_table_40,
        relation=_relation_40,
        pins_scans=False,  # Iceberg names the branch to any table's scan
        streams=lambda: classes().org.apache.spark.sql.execution.streaming,
        plain_checkpoint="org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
    ),
    "4.1": SparkVersion(
        connector_table=_connector_table_41,
        staged_table=_staged_table_41,
        relation=_relation_41,
        pins_scans=True,  # Iceberg pins only the scans of its own table class
        streams=lambda: classes().org.apache.spark.sql.execution.streaming.runtime,
        plain_checkpoint="org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    ),
}
"""The calls by Spark's major.minor."""
