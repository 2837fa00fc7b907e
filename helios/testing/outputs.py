"""Reads the rows of targets that are not tables: rows in memory, and records of a topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from helios.errors import InputError
from helios.plan.nodes import Plan
from helios.plan.typing.schema import Column, Schema
from helios.sources.kafka.sink import KafkaSink
from helios.sources.memory.declare import Memory
from helios.testing.casts import cast_rows, inferred
from helios.testing.diff import hidden
from helios.testing.records import Record
from helios.testing.topics import Topics

__tracebackhide__ = hidden


def delivered(plan: Plan, topics: Topics) -> tuple[list[dict[str, Any]], Schema]:
    """The rows of a target that is not a table, and their columns.

    A record of a topic is a row: with the fields of the value if the sink writes JSON (binary columns are then text, as
    in the JSON), and otherwise with the columns `key` and `value`.

    Args:
        plan: The plan of the pipeline.
        topics: The topics of the lake.

    Raises:
        InputError: A record of the topic is not a JSON object, or does not fit the columns: another program wrote it.
    """
    sink = plan.write.sink
    if isinstance(sink, KafkaSink):
        return _of_topic(sink, plan.schema, topics.logs[sink.topic][0])
    rows = Memory.rows(plan.write.table.table)
    return rows, plan.schema or inferred(rows, plan.write.table.text)


def _of_topic(sink: KafkaSink, schema: Schema | None, records: Sequence[Record]) -> tuple[list[dict[str, Any]], Schema]:
    if sink.format == "json":
        rows = [_fields(sink, number, record) for number, record in enumerate(records, 1)]
        columns = schema or inferred(rows, sink.topic)
        as_text = [
            Column(column.name, "string") if column.kind.name == "binary" else column for column in columns.columns
        ]
        text_schema = Schema(tuple(as_text))
        return cast_rows(rows, text_schema, sink.topic), text_schema
    kind = "string" if sink.format == "string" else "binary"
    text = kind == "string"
    values = [record.value.decode() if text and record.value is not None else record.value for record in records]
    keys = [record.key for record in records]
    record_schema = Schema((Column("key", "binary"), Column("value", kind)))
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)], record_schema


def _fields(sink: KafkaSink, number: int, record: Record) -> dict[str, Any]:
    try:
        fields = json.loads(record.value or b"", parse_float=Decimal)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise InputError(
            f"record {number} of topic {sink.topic} is not a JSON object: {record.value!r}.",
            fix=f'read the records themselves: lake.records("{sink.topic}").',
        )
    return fields
