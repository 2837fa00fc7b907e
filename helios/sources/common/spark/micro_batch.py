"""Spark's `MicroBatchStream` for a followed source, implemented in Python.

Spark keeps the offset log, runs the triggers, and recovers after a failure. The source returns the end offset of each
batch. Without a planner, Spark takes only offsets from this stream, and Helios reads the rows of a batch as a span.
With a planner, Spark itself reads the input partitions that the planner returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from helios.plan.nodes import ReadPlan
from helios.sources.common.spark.context import SourceContext
from helios.spark.jvm.classes import allow_callbacks, classes, java_array
from helios.spark.jvm.types.java import JavaArray, JavaMap, JavaObject, JavaSet
from helios.spark.jvm.types.spark import JavaInputPartition, JavaOffset, JavaReaderFactory, JavaStructType
from helios.table.positions import Position

CONNECTOR = "org.apache.spark.sql.connector"

T = TypeVar("T")

Planner = Callable[
    [Position, Position, JavaStructType], "tuple[JavaArray[JavaInputPartition], JavaReaderFactory | None]"
]
"""Takes two positions and the columns; returns the input partitions, and their reader factory or None."""


class FollowedSource(Protocol):
    """The members of a source that `SourceOffsets` and `MicroBatchStream` use."""

    context: SourceContext
    read_plan: ReadPlan
    error: BaseException | None
    stream_columns: StructType | None

    def start(self) -> Position: ...

    def latest(self, after: Position) -> Position: ...

    def freeze(self) -> None: ...

    def schema(self) -> StructType: ...


S = TypeVar("S", bound=FollowedSource)


class SourceOffsets(Generic[S]):
    """The columns and offsets of a followed source, which both `MicroBatchStream` and `RowStream` need."""

    def __init__(self, source: S) -> None:
        self.source = source
        allow_callbacks()
        # A running stream keeps its columns; new columns need a new stream.
        self._schema = source.stream_columns = source.stream_columns or source.schema()
        self._java_schema: JavaStructType = source.context.spark._jsparkSession.parseDataType(self._schema.json())

    def initialOffset(self) -> JavaOffset:
        return offset_of(self.source.start())

    def deserializeOffset(self, text: str) -> JavaOffset:
        return offset_of(json.loads(text))

    def getDefaultReadLimit(self) -> JavaObject:
        limit: JavaObject = classes().org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:
        keeping_error(self.source, self.source.freeze)

    def latestOffset(self, start: JavaOffset | None = None, limit: JavaObject | None = None) -> JavaOffset:
        after = position_of(start) if start is not None else self.source.start()
        return offset_of(keeping_error(self.source, lambda: self.source.latest(after)))

    def reportLatestOffset(self) -> None:
        return None

    def commit(self, end: JavaOffset) -> None:
        return None

    def stop(self) -> None:
        return None

    # java.lang.Object

    def toString(self) -> str:
        return self.source.read_plan.name

    def hashCode(self) -> int:
        return hash(self.toString()) & 0x7FFFFFFF

    def equals(self, other: JavaObject) -> bool:
        return False


class MicroBatchStream(SourceOffsets[FollowedSource]):
    """A followed source as Spark's stream, with input partitions.

    Implements the interfaces through which Spark finds a stream: its table, scan builder, scan and micro-batch stream.

    Args:
        planner: Plans the partitions that Spark reads; None if only the offsets are used.
    """

    def __init__(self, source: FollowedSource, planner: Planner | None = None) -> None:
        super().__init__(source)
        self._planner = planner
        self._jvm = classes()
        self._factory: JavaReaderFactory | None = None
        self._planned: tuple[str, JavaArray[JavaInputPartition]] | None = None

    def df(self) -> DataFrame:
        """The stream as a streaming DataFrame."""
        jvm = self._jvm
        none = jvm.scala.Option.empty()
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(self._java_schema)
        options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()
        plan = jvm.org.apache.spark.sql.catalyst.streaming.StreamingRelationV2(
            none, "helios", self, options, attributes, none, none, none
        )
        spark = self.source.context.spark
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)

    def _empty_array(self, kind: str) -> JavaArray[T]:
        package = self._jvm
        for part in f"{CONNECTOR}.{kind}".split("."):
            package = getattr(package, part)
        return java_array(package)

    # Spark's interface SupportsRead, a Table

    def name(self) -> str:
        return self.source.read_plan.name

    def id(self) -> None:
        return None

    def version(self) -> None:
        return None

    def schema(self) -> JavaStructType:
        return self._java_schema

    def columns(self) -> JavaObject:
        columns: JavaObject = self._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util.structTypeToV2Columns(
            self._java_schema
        )
        return columns

    def partitioning(self) -> JavaArray[JavaObject]:
        return self._empty_array("expressions.Transform")

    def constraints(self) -> JavaArray[JavaObject]:
        return self._empty_array("catalog.constraints.Constraint")

    def properties(self) -> JavaMap[str, str]:
        properties: JavaMap[str, str] = self._jvm.java.util.HashMap()
        return properties

    def capabilities(self) -> JavaSet[JavaObject]:
        return self._capabilities

    @cached_property
    def _capabilities(self) -> JavaSet[JavaObject]:  # cached, since Spark calls it several times in a run
        capabilities: JavaSet[JavaObject] = self._jvm.java.util.HashSet()
        capabilities.add(self._jvm.org.apache.spark.sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        return capabilities

    def newScanBuilder(self, options: JavaObject) -> MicroBatchStream:
        return self

    # Spark's interfaces ScanBuilder and Scan

    def build(self) -> MicroBatchStream:
        return self

    def readSchema(self) -> JavaStructType:
        return self._java_schema

    def description(self) -> str:
        return self.name()

    def toMicroBatchStream(self, checkpoint: str) -> MicroBatchStream:
        return self

    def supportedCustomMetrics(self) -> JavaArray[JavaObject]:
        return self._empty_array("metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaArray[JavaObject]:
        return self._empty_array("metric.CustomTaskMetric")

    def columnarSupportMode(self) -> JavaObject:
        return self._columnar_mode

    @cached_property
    def _columnar_mode(self) -> JavaObject:
        modes = getattr(self._jvm.org.apache.spark.sql.connector.read, "Scan$ColumnarSupportMode")
        mode: JavaObject = modes.PARTITION_DEFINED if self._planner is not None else modes.UNSUPPORTED
        return mode

    # Spark's interface MicroBatchStream

    def planInputPartitions(self, start: JavaOffset, end: JavaOffset) -> JavaArray[JavaInputPartition]:
        key = f"{start.json()} {end.json()}"
        if self._planned is None or self._planned[0] != key:
            self._planned = key, keeping_error(self.source, lambda: self._plan(start, end))
        return self._planned[1]

    def createReaderFactory(self) -> JavaReaderFactory:
        # Spark asks for a factory even without partitions; any serializable factory works.
        unused = getattr(
            self._jvm.org.apache.spark.sql.execution.streaming.sources, "RateStreamMicroBatchReaderFactory$"
        )
        return self._factory or getattr(unused, "MODULE$")

    def _plan(self, start: JavaOffset, end: JavaOffset) -> JavaArray[JavaInputPartition]:
        if self._planner is None:
            return self._empty_array("read.InputPartition")
        partitions, self._factory = self._planner(position_of(start), position_of(end), self._java_schema)
        return partitions if self._factory is not None else self._empty_array("read.InputPartition")

    class Java:
        implements = (
            f"{CONNECTOR}.catalog.SupportsRead",
            f"{CONNECTOR}.read.ScanBuilder",
            f"{CONNECTOR}.read.Scan",
            f"{CONNECTOR}.read.streaming.MicroBatchStream",
            f"{CONNECTOR}.read.streaming.SupportsTriggerAvailableNow",
        )


def position_of(offset: JavaOffset) -> Position:
    position: Position = json.loads(str(offset.json()))
    return position


def offset_of(position: Position) -> JavaOffset:
    text = json.dumps(dict(position), sort_keys=True, separators=(",", ":"))
    offset: JavaOffset = classes().org.apache.spark.sql.execution.streaming.SerializedOffset.apply(text)
    return offset


def keeping_error(source: FollowedSource, call: Callable[[], T]) -> T:
    """Runs a callback and keeps its error on the source, as Spark passes on only the error's text."""
    try:
        return call()
    except Exception as error:
        source.error = error
        raise
