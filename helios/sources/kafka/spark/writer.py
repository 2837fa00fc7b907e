"""Writes rows to a Kafka topic with Spark's batch writer: all records are acknowledged before the batch ends."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from helios.errors import InputError, RunError
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.sink import KafkaSink
from helios.sources.kafka.spark.cluster import Cluster, revealed_properties
from helios.sources.kafka.transport import stand_in
from helios.spark.jvm.sql import JSON_TIMES, quoted, refusal

NESTED = (ArrayType, MapType, StructType, VariantType)

JSON_OPTIONS = {"ignoreNullFields": "false", **JSON_TIMES}
"""Options of `to_json` with which no null and no digit is lost."""

REFUSED = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+): ([^\n]*)")


class KafkaWriter:
    """Produces the batches of a topic's sink."""

    def __init__(self, sink: KafkaSink) -> None:
        self.sink = sink

    def start(self, pipeline: str, *, begun: bool) -> None:
        """Verifies that the topic exists: a producer would wait a minute for a missing topic, or a broker create it.

        Args:
            begun: Whether the pipeline has run a batch. It then waits for unreachable brokers.

        Raises:
            NotFound: The topic does not exist.
            RunError: The cluster does not answer, or refuses.
        """
        source = _as_source(self.sink)
        cluster = stand_in(source) or Cluster(source, self.sink.label())
        try:
            if not cluster.logs([self.sink.topic]):
                raise cluster.missing_topics_error([self.sink.topic])
        except RunError as error:
            if begun:
                raise
            # An error without a cause does not count as an outage, so the run stops instead of waiting.
            raise RunError(error.what, where=error.where, fix=error.fix) from None

    def deliver(self, pipeline: str, df: DataFrame, number: int, count: int) -> None:
        """Produces the rows of a batch.

        Raises:
            InputError: The key or the value cannot be computed from these rows, or has the wrong type.
            RunError: A record was refused.
        """
        records = _records(self.sink, df)
        test_topics = stand_in(_as_source(self.sink))
        if test_topics is not None:
            test_topics.produce(self.sink.topic, records)
            return
        options = {f"kafka.{name}": value for name, value in revealed_properties(self.sink).items()}
        options |= {"kafka.acks": "all", "kafka.enable.idempotence": "true", "topic": self.sink.topic}
        try:
            records.write.format("kafka").options(**options).save()
        except (Py4JJavaError, PySparkException) as error:
            refused = REFUSED.findall(str(error))
            if not refused:
                raise
            name, message = refused[-1]
            raise RunError(
                f"{self.sink.label()}: a record of the batch was refused: {name}: {message}",
                where=self.sink.origin,
                fix="repair the cause, and run again: records of the batch that were accepted are produced again, too.",
            ) from error


def _as_source(sink: KafkaSink) -> KafkaSource:
    """The topic of a sink as a source with the same connection."""
    return KafkaSource(
        topics=(sink.topic,),
        brokers=sink.brokers,
        login=sink.login,
        encryption=sink.encryption,
        client_settings=sink.client_settings,
        origin=sink.origin,
    )


def _records(sink: KafkaSink, df: DataFrame) -> DataFrame:
    """The rows in the form that Spark's writer needs: the column `value`, and `key` if the sink declares one."""
    if sink.format == "json":
        value = F.to_json(F.struct(*[F.col(quoted(name)) for name in df.columns]), JSON_OPTIONS)
    else:
        required: DataType = StringType() if sink.format == "string" else BinaryType()
        value_type = _type(sink, df, sink.value_expression, f"value({sink.format!r}, {sink.value_expression!r})")
        if value_type != required:
            raise InputError(
                f"{sink.label()}: {sink.value_expression} is {value_type.simpleString()}, "
                f"not {required.simpleString()}.",
                where=sink.origin,
                fix=f'write value("{sink.format}", "CAST(... AS {required.simpleString()})").',
            )
        value = F.expr(sink.value_expression)
    columns: list[Column] = [value.alias("value")]
    if sink.key_expression is not None:
        key_type = _type(sink, df, sink.key_expression, f"key({sink.key_expression!r})")
        if isinstance(key_type, NESTED):
            raise InputError(
                f"{sink.label()}: key({sink.key_expression!r}) is {key_type.simpleString()}, "
                "and a key is bytes or text.",
                where=sink.origin,
                fix=f'write key("to_json({sink.key_expression})").',
            )
        key = F.expr(sink.key_expression)
        columns.append((key if isinstance(key_type, BinaryType) else key.cast("string")).alias("key"))
    return df.select(*columns)


def _type(sink: KafkaSink, df: DataFrame, expression: str, declared: str) -> DataType:
    try:
        return df.select(F.expr(expression)).schema.fields[0].dataType
    except AnalysisException as error:
        raise refusal(f"{sink.label()}: {declared}", error, sink.origin) from error
