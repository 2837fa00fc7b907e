"""Parquet's schemas."""

from __future__ import annotations

from typing import Protocol

from helios.spark.jvm.types.java import JavaObject


class JavaParquetType(JavaObject, Protocol):
    """An `org.apache.parquet.schema.Type`."""


class JavaMessageType(JavaObject, Protocol):
    """An `org.apache.parquet.schema.MessageType`."""

    def getType(self, index: int) -> JavaParquetType: ...
