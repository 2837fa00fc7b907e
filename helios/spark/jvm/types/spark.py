"""Spark's own objects: sessions, plans, and the connector interfaces between Spark and a source or table."""

from __future__ import annotations

from typing import Protocol, Self

from helios.spark.jvm.types.hadoop import JavaConfiguration
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaArray, JavaObject, ScalaMap, ScalaOption, ScalaSeq

# types


class JavaDataType(JavaObject, Protocol):
    """An `org.apache.spark.sql.types.DataType`."""

    def json(self) -> str: ...

    def defaultSize(self) -> int:
        """The approximate size of a value in bytes."""

    def asNullable(self) -> JavaDataType: ...


class JavaStructType(JavaDataType, Protocol):
    """An `org.apache.spark.sql.types.StructType`."""

    def fieldNames(self) -> JavaArray[str]: ...

    def add(self, name: str, type: str) -> JavaStructType: ...


# sessions


class JavaSparkConf(JavaObject, Protocol):
    """An `org.apache.spark.SparkConf`."""

    def get(self, key: str, default: str) -> str: ...

    def getBoolean(self, key: str, default: bool) -> bool: ...

    def set(self, key: str, value: str) -> Self: ...

    def setIfMissing(self, key: str, value: str) -> Self: ...


class JavaSparkContext(JavaObject, Protocol):
    """An `org.apache.spark.SparkContext`."""

    def conf(self) -> JavaSparkConf: ...

    def getExecutorMemoryStatus(self) -> ScalaMap[str, JavaObject]:
        """The memory of each block manager, by address. One of them is the driver's."""


class JavaCatalogManager(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.catalog.CatalogManager`."""

    def catalog(self, name: str) -> JavaObject: ...


class JavaParser(JavaObject, Protocol):
    """An `org.apache.spark.sql.catalyst.parser.ParserInterface`."""

    def parseExpression(self, text: str) -> JavaSparkExpression: ...

    def parsePlan(self, text: str) -> JavaLogicalPlan: ...


class JavaFunctionRegistry(JavaObject, Protocol):
    """An `org.apache.spark.sql.catalyst.analysis.FunctionRegistry`."""

    def dropFunction(self, name: JavaObject) -> bool: ...


class JavaSessionState(JavaObject, Protocol):
    """An `org.apache.spark.sql.internal.SessionState`."""

    def newHadoopConf(self) -> JavaConfiguration: ...

    def catalogManager(self) -> JavaCatalogManager: ...

    def sqlParser(self) -> JavaParser: ...

    def functionRegistry(self) -> JavaFunctionRegistry: ...

    def executePlan(self, plan: JavaLogicalPlan, mode: JavaObject) -> JavaQueryExecution: ...


class JavaSparkSession(JavaObject, Protocol):
    """An `org.apache.spark.sql.classic.SparkSession`."""

    def sparkContext(self) -> JavaSparkContext: ...

    def sessionState(self) -> JavaSessionState: ...

    def cloneSession(self) -> JavaSparkSession: ...

    def parseDataType(self, json: str) -> JavaStructType: ...


# plans


class JavaSparkExpression(JavaObject, Protocol):
    """An `org.apache.spark.sql.catalyst.expressions.Expression`."""

    def sql(self) -> str: ...

    def deterministic(self) -> bool: ...

    def children(self) -> ScalaSeq[JavaSparkExpression]: ...


class JavaBinaryExpression(JavaSparkExpression, Protocol):
    """An `org.apache.spark.sql.catalyst.expressions.BinaryExpression`."""

    def left(self) -> JavaSparkExpression: ...

    def right(self) -> JavaSparkExpression: ...


class JavaLogicalPlan(JavaObject, Protocol):
    """An `org.apache.spark.sql.catalyst.plans.logical.LogicalPlan`."""

    def nodeName(self) -> str: ...

    def children(self) -> ScalaSeq[JavaLogicalPlan]: ...

    def withNewChildren(self, children: ScalaSeq[JavaLogicalPlan]) -> JavaLogicalPlan: ...

    def expressions(self) -> ScalaSeq[JavaSparkExpression]: ...

    def subqueries(self) -> ScalaSeq[JavaLogicalPlan]: ...

    def isStreaming(self) -> bool: ...


class JavaSubqueryAlias(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias`."""

    def alias(self) -> str: ...


class JavaJoinType(JavaObject, Protocol):
    """An `org.apache.spark.sql.catalyst.plans.JoinType`."""

    def sql(self) -> str: ...


class JavaJoin(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.catalyst.plans.logical.Join`."""

    def joinType(self) -> JavaJoinType: ...


class JavaLogicalRelation(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.execution.datasources.LogicalRelation`: a scan of files."""

    def relation(self) -> JavaObject: ...

    def output(self) -> JavaObject: ...

    def catalogTable(self) -> JavaObject: ...

    def copy(self, *fields: object) -> JavaLogicalRelation:
        """The relation with other fields; py4j needs all fields of a Scala case class."""


class JavaUnresolvedRelation(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.catalyst.analysis.UnresolvedRelation`."""

    def multipartIdentifier(self) -> ScalaText: ...


class ScalaText(ScalaSeq[str], Protocol):
    """A `scala.collection.Seq` of strings."""

    def mkString(self, separator: str) -> str: ...


class JavaStatusWriter(Protocol):
    """Helios's Java class `Statuses`, which writes file statuses into a file."""

    def call(self, statuses: ScalaText, file: str) -> None: ...


class JavaRelation(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation`."""

    def table(self) -> JavaConnectorTable: ...

    def options(self) -> JavaObject: ...

    def copy(self, *fields: object) -> JavaRelation:
        """The relation with other fields; py4j needs all fields of a Scala case class."""


class JavaQueryExecution(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.QueryExecution`."""

    def analyzed(self) -> JavaLogicalPlan: ...

    def withCachedData(self) -> JavaLogicalPlan:
        """The plan, with a leaf in place of each cached DataFrame."""

    def commandExecuted(self) -> JavaLogicalPlan:
        """The plan. If the plan is a command, the first call runs the command, and the plan is a `CommandResult`."""

    def executedPlan(self) -> JavaSparkPlan: ...


class JavaDataset(JavaObject, Protocol):
    """An `org.apache.spark.sql.classic.Dataset`."""

    def queryExecution(self) -> JavaQueryExecution: ...

    def schema(self) -> JavaStructType: ...

    def showString(self, rows: int, truncate: int, vertical: bool) -> str: ...


# executed plans


class JavaSparkPlan(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.SparkPlan`."""

    def children(self) -> ScalaSeq[JavaSparkPlan]: ...

    def metrics(self) -> ScalaMap[str, JavaSqlMetric]: ...


class JavaStateStoreWriter(JavaSparkPlan, Protocol):
    """An `org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter`."""

    def eventTimeWatermarkForLateEvents(self) -> ScalaOption[int]: ...


class JavaSqlMetric(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.metric.SQLMetric`."""

    def value(self) -> int: ...


class JavaStreamExecution(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.streaming.runtime.StreamExecution`."""

    def lastExecution(self) -> JavaQueryExecution: ...


class JavaStreamingQuery(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper`."""

    def streamingQuery(self) -> JavaStreamExecution: ...


class JavaBatchScanExec(JavaSparkPlan, Protocol):
    """An `org.apache.spark.sql.execution.datasources.v2.BatchScanExec` over an Iceberg table."""

    def table(self) -> JavaConnectorTable: ...

    def scan(self) -> JavaConnectorScan: ...


class JavaCommandResult(JavaLogicalPlan, Protocol):
    """An `org.apache.spark.sql.catalyst.plans.logical.CommandResult`."""

    def commandPhysicalPlan(self) -> JavaSparkPlan: ...


class JavaAdaptiveSparkPlanExec(JavaSparkPlan, Protocol):
    """An `org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec`."""

    def executedPlan(self) -> JavaSparkPlan: ...


class JavaQueryStageExec(JavaSparkPlan, Protocol):
    """An `org.apache.spark.sql.execution.adaptive.QueryStageExec`."""

    def plan(self) -> JavaSparkPlan: ...


class JavaCachedPlanBuilder(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.columnar.CachedRDDBuilder`."""

    def cachedPlan(self) -> JavaSparkPlan: ...


class JavaInMemoryRelation(JavaObject, Protocol):
    """An `org.apache.spark.sql.execution.columnar.InMemoryRelation`."""

    def cacheBuilder(self) -> JavaCachedPlanBuilder: ...


class JavaInMemoryTableScanExec(JavaSparkPlan, Protocol):
    """An `org.apache.spark.sql.execution.columnar.InMemoryTableScanExec`."""

    def relation(self) -> JavaInMemoryRelation: ...


# connectors


class JavaTaskMetric(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.metric.CustomTaskMetric`."""

    def name(self) -> str: ...

    def value(self) -> int: ...


class JavaInputPartition(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.InputPartition`."""


class JavaReaderFactory(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.PartitionReaderFactory`."""


class JavaBatch(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.Batch`."""

    def planInputPartitions(self) -> JavaArray[JavaInputPartition]: ...

    def createReaderFactory(self) -> JavaReaderFactory: ...


class JavaConnectorScan(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.Scan`."""

    def toBatch(self) -> JavaBatch: ...

    def reportDriverMetrics(self) -> JavaArray[JavaTaskMetric]: ...


class JavaScanBuilder(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.ScanBuilder` with `SupportsPushDownRequiredColumns`."""

    def pruneColumns(self, columns: JavaStructType) -> None: ...

    def build(self) -> JavaConnectorScan: ...


class JavaConnectorTable(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.catalog.Table` over an Iceberg table."""

    def name(self) -> str: ...

    def table(self) -> JavaTable: ...

    def schema(self) -> JavaStructType: ...

    def newScanBuilder(self, options: JavaObject) -> JavaScanBuilder: ...


class JavaOffset(JavaObject, Protocol):
    """An `org.apache.spark.sql.connector.read.streaming.Offset`."""

    def json(self) -> str: ...
