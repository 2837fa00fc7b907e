"""Reads columns, properties and settings from the JVM: all in one call, because a call for each of them is slow."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypedDict

from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.iceberg import JavaSchema, JavaTable
from helios.spark.jvm.types.java import JavaMap


class Field(TypedDict):
    """A column in Iceberg's JSON. It may also have the key `initial-default`. A nested `type` is an object."""

    id: int
    name: str
    required: bool
    type: object


def fields_of(schema: JavaSchema) -> list[Field]:
    fields: list[Field] = json.loads(classes().org.apache.iceberg.SchemaParser.toJson(schema))["fields"]
    return fields


def null_if_absent(table: JavaTable, fields: Iterable[Field]) -> frozenset[int]:
    """The ids of columns that are null in files without them: optional columns without a default or partition value."""
    specs, to_json = table.specs(), classes().org.apache.iceberg.PartitionSpecParser.toJson
    parsed = [json.loads(to_json(specs.get(spec_id))) for spec_id in listed(specs.keySet())]
    identities = {field["source-id"] for spec in parsed for field in spec["fields"] if field["transform"] == "identity"}
    optional = (field for field in fields if not field["required"] and "initial-default" not in field)
    return frozenset(field["id"] for field in optional if field["id"] not in identities)


def string_map(java_map: JavaMap[str, str]) -> dict[str, str]:
    text = classes().org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(java_map)
    entries: dict[str, str] = json.loads(text)
    return entries
