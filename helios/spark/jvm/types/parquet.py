"""Parquet's schemas."""

from __future__ import annotations

from typing import Protocol

from helios.spark.jvm.types.java import JavaList, JavaObject


class JavaParquetType(JavaObject, Protocol):
    """An `org.apache.parquet.schema.Type`."""

    def getName(self) -> str: ...


class JavaMessageType(JavaObject, Protocol):
    """An `org.apache.parquet.schema.MessageType`."""

    def getFields(self) -> JavaList[JavaParquetType]: ...
