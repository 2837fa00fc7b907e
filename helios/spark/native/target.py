"""Describes the target table for the columnar engine, and refuses tables that the engine does not write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.native.partitions import PARTITION_TYPES, parse_transform
from helios.native.program import NotNative
from helios.native.work import Column, Partition, Sort, Target
from helios.plan.native.rules import SUPPORTED_TYPE
from helios.plan.properties import GZIP_LEVELS
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.native.fields import fields_of, string_map
from helios.spark.native.stores import Store

CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none", "none": "none"}
ZSTD_LEVEL = 3
"""The default compression level of Iceberg's own writer; PyArrow's default is 1."""
PARQUET = "write.parquet."
KNOWN_PROPERTIES = frozenset(
    PARQUET + key
    for key in (
        "compression-codec", "compression-level", "row-group-size-bytes", "page-size-bytes", "page-row-limit",
        "dict-size-bytes", "row-group-check-min-record-count", "row-group-check-max-record-count",
    )
)  # fmt: skip
"""Table properties about parquet: the engine applies them, or they are only hints about sizes."""
REFUSED_PROPERTIES = (
    "encryption.key-id", "write.object-storage.enabled", "write.location-provider.impl", "write.object-storage.path",
)  # fmt: skip
"""The engine does not write a table that has one of these properties, unless its value is `false`."""
SESSION_PREFIXES = (
    "spark.sql.iceberg.", "spark.wap.", "spark.sql.legacy.", "spark.sql.parquet.datetimeRebase",
    "spark.sql.parquet.binaryAsString",
)  # fmt: skip
"""Prefixes of session settings that change how Spark writes or computes."""
REQUIRED_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "utc",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Session settings that change the meaning of expressions. A setting that is set must have this value."""
HARMLESS_WORDS = ("vectorization", "planning", "locality", "executor-cache", "aggregate-push-down")
"""Settings whose names contain one of these words change no result, even with a prefix of `SESSION_PREFIXES`."""


def target_of(
    spark: SparkSession, table: JavaTable, store: Store, properties: JavaMap[str, str], schema: StructType
) -> Target:
    """Describes the table for the tasks.

    Args:
        properties: The table's properties, as the sink overrides them.
        schema: The columns of the batch, which are also those of the table.

    Raises:
        NotNative: The engine does not write such a table.
    """
    settings = string_map(properties)
    _refuse(spark, table, settings)
    columns = _columns(table, schema)
    codec = settings.get(PARQUET + "compression-codec", "zstd").lower()
    if codec not in CODECS:
        raise NotNative(f"the table is written with {codec}")
    level = settings.get(PARQUET + "compression-level")
    default_level = ZSTD_LEVEL if codec == "zstd" else None
    location = str(table.locationProvider().newDataLocation("x"))
    return Target(
        folder=store.path(location.removesuffix("/x")),
        spec=int(table.spec().specId()),
        columns=columns,
        partition=_partition(table, columns),
        codec=CODECS[codec],
        level=_level(codec, level) if level is not None else default_level,
        file_size=int(settings.get("write.target-file-size-bytes", 512 << 20)),
        group_size=int(settings.get(PARQUET + "row-group-size-bytes", 128 << 20)),
        sort=_sort(table, columns),
        sort_id=int(table.sortOrder().orderId()),
        spread=_spread(table, settings.get("write.distribution-mode")),
    )


def _level(codec: str, level: str) -> int | None:
    """A compression level as a number; None for a codec without levels. For gzip, Iceberg names the levels."""
    if CODECS[codec] in ("snappy", "none"):
        return None
    if codec == "gzip" and level.upper() in GZIP_LEVELS:
        return GZIP_LEVELS.index(level.upper()) + 1
    if not re.fullmatch(r"-?\d+", level, re.ASCII):
        raise NotNative(f"the table has the compression level {level}")
    return int(level)


def _refuse(spark: SparkSession, table: JavaTable, settings: Mapping[str, str]) -> None:
    """Refuses a table or a session with properties or settings that the engine does not apply."""
    if settings.get("write.format.default", "parquet").lower() != "parquet":
        raise NotNative(f"the table is written as {settings['write.format.default']}")
    for key in settings:
        if key.startswith(PARQUET) and key not in KNOWN_PROPERTIES:
            raise NotNative(f"the table has the property {key}")
    default_fs = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///"))
    if not default_fs.startswith("file:"):
        raise NotNative(f"paths without a scheme are on the default file system {default_fs}")
    refused = next((key for key in REFUSED_PROPERTIES if settings.get(key, "false") != "false"), None)
    if refused is not None:
        raise NotNative(f"the table has the property {refused}")
    for key, value in string_map(spark.conf._jconf.getAllAsJava()).items():
        required = REQUIRED_SETTINGS.get(key)
        differs = value.lower() != required if required is not None else key.startswith(SESSION_PREFIXES)
        if differs and not any(word in key for word in HARMLESS_WORDS):
            raise NotNative(f"the session has the setting {key}")


def _columns(table: JavaTable, schema: StructType) -> tuple[Column, ...]:
    metrics = classes().org.apache.iceberg.MetricsConfig.forTable(table)
    spark_types = {field.name: field.dataType.simpleString() for field in schema.fields}
    columns = []
    for field in fields_of(table.schema()):
        name, iceberg_type = field["name"], field["type"]
        if name not in spark_types:
            raise NotNative(f"the batch lacks the table's column {name}")
        if not SUPPORTED_TYPE.fullmatch(spark_types[name]) or not name.isidentifier() or not name.isascii():
            raise NotNative(f"the table has the column {name} of type {spark_types[name]}")
        if iceberg_type != _ICEBERG_TYPES.get(spark_types[name], spark_types[name].replace(",", ", ")):
            raise NotNative(f"the table stores {name} as {iceberg_type}")
        columns.append(Column(name, field["id"], spark_types[name], field["required"], str(metrics.columnMode(name))))
    return tuple(columns)


_ICEBERG_TYPES = {"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
"""Iceberg's names of types, where Spark's name is another one."""


def _spread(table: JavaTable, mode: str | None) -> str:
    """The distribution of rows that Iceberg requests from Spark; see `Target.spread`."""
    if mode == "none":
        return "apart"
    if not table.sortOrder().isUnsorted():
        return "together"
    if not int(table.spec().fields().size()):
        return "apart"
    return "partitions" if mode is None else "together"


def _sort(table: JavaTable, columns: tuple[Column, ...]) -> tuple[Sort, ...]:
    order = table.sortOrder()
    if order.isUnsorted():
        return ()
    by_id = {column.id: column.name for column in columns}
    terms = []
    for part in json.loads(classes().org.apache.iceberg.SortOrderParser.toJson(order))["fields"]:
        column = by_id.get(part["source-id"])
        if part["transform"] != "identity" or column is None:
            raise NotNative(f"the table is sorted by {part['transform']} of {column or 'a field'}")
        terms.append(Sort(column, part["direction"] == "desc", part["null-order"] == "nulls-last"))
    return tuple(terms)


def _partition(table: JavaTable, columns: tuple[Column, ...]) -> tuple[Partition, ...]:
    by_id = {column.id: column for column in columns}
    fields = []
    for field in listed(table.spec().fields()):
        column, transform = by_id.get(int(field.sourceId())), str(field.transform().toString())
        name, _width = parse_transform(transform)
        types = PARTITION_TYPES.get(name, ())
        if column is None or column.kind.partition("(")[0] not in types or _overflows(column.kind, transform):
            raise NotNative(f"the table is partitioned by {transform} of {column.kind if column else 'a field'}")
        fields.append(Partition(str(field.name()), column.name, column.kind, transform))
    return tuple(fields)


def _overflows(kind: str, transform: str) -> bool:
    """True if the numbers with which Java computes a transform may overflow.

    Examples:
        >>> _overflows("int", "truncate[2000000000]"), _overflows("bigint", "truncate[2000000000]")
        (True, False)
    """
    name, width = parse_transform(transform)
    return name == "truncate" and kind == "int" and width > 1 << 30
