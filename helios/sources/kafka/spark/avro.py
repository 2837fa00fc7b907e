"""Reads values in Avro's binary format: Avro resolves them into one schema, and Spark turns them into columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from helios.errors import InputError, Origin, first_line
from helios.sources.common.spark.types import as_nullable
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.registry import authorization, latest_schema
from helios.sources.kafka.values import Registry
from helios.spark.jvm.functions import java_function

CODE = Path(__file__).with_name("AvroValue.java")

BYTES, BAD_REASON = "bytes", "why"
"""The fields of a resolved value: its bytes in the schema of the source, and the reason if the value is bad."""

RESOLVED = StructType([StructField(BYTES, BinaryType()), StructField(BAD_REASON, StringType())])


def resolved(spark: SparkSession, source: KafkaSource) -> Column:
    """The value of a record, resolved by AvroValue.java into the schema of the source. The schema must be known."""
    registry = source.values.registry
    address, login = (registry.url, authorization(registry)) if registry is not None else ("", "")
    settings = [str(source.values.avro), address, login, source.values.extra == "fail"]
    return java_function(spark, "helios_avro_value", CODE, [F.col("value")], settings, result_type=RESOLVED)


def parsed(value: Column, schema: str) -> Column:
    """A resolved value as Spark's struct."""
    return from_avro(value[BYTES], schema, {"mode": "FAILFAST"})


def columns_of(spark: SparkSession, schema: str, where: Origin) -> StructType:
    """The columns of an Avro schema in JSON.

    Raises:
        InputError: Avro or Spark cannot read the schema.
    """
    try:
        value = from_avro(F.lit(None).cast("binary"), schema)
        data_type = spark.range(0).select(value.alias("value")).schema["value"].dataType
    except PySparkException as error:
        raise InputError(
            f"the Avro schema cannot be read: {first_line(error)}",
            where=where,
            fix="correct the schema; Spark does not read recursive types.",
        ) from error
    if not isinstance(data_type, StructType):
        raise InputError(
            f"the Avro schema is not that of a record, but of {data_type.simpleString()}.",
            where=where,
            fix='read value("bytes"), and decode it in a step of your own.',
        )
    optional = as_nullable(data_type)  # a record without a value has nulls in all columns
    assert isinstance(optional, StructType)
    return optional


def followed_schema(registry: Registry, topics: Iterable[str], where: Origin) -> str:
    """The schema that the columns follow: the latest schema of the declared subject, or of `TOPIC-value`.

    Raises:
        InputError: The schemas of several topics differ, or there is no topic.
        HeliosError: The registry does not answer, lacks the subject, or has no plain Avro schema in the subject.
    """
    if registry.subject is None and not topics:
        raise InputError(
            "no topic matches the pattern, so the schema is unknown.",
            where=where,
            fix='create a topic, or declare value("avro", schema=...).',
        )
    subjects = [registry.subject] if registry.subject is not None else [f"{topic}-value" for topic in topics]
    schemas = {subject: latest_schema(registry, subject, where).schema for subject in subjects}
    first = subjects[0]
    other = next((subject for subject, schema in schemas.items() if schema != schemas[first]), None)
    if other is not None:
        raise InputError(
            f"the schemas of the subjects {first} and {other} differ, and a source can have only one.",
            where=where,
            fix='read each topic with a source of its own, or declare value("avro", schema=...).',
        )
    return schemas[first]
