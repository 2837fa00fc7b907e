"""The source kinds of `Cdc.debezium` and `Cdc.json`: Kafka topics whose rows carry their order and deletes."""

from __future__ import annotations

from dataclasses import replace

from helios.errors import HeliosError
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import Schema
from helios.sources.changes.checks import change_log_problems, several_tables_problems
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.json import ChangeLogSource
from helios.sources.common.describe import declared_columns
from helios.sources.kafka.checks import topic_problems
from helios.sources.kafka.kind import KAFKA


def _debezium(source: CdcSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source)
    problems = topic_problems(source.kafka, schema or Schema(()))
    if not around.mirrored:
        problems = [*problems, *several_tables_problems(source)]
    return ReadPlan(source=source, schema=schema), problems


def _change_log(source: ChangeLogSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source.kafka)
    problems = [
        *topic_problems(source.kafka, schema),
        *several_tables_problems(source),
        *change_log_problems(source, schema),
    ]
    if schema is not None:
        operation = source.op_column.lower()
        schema = Schema(tuple(column for column in schema.columns if column.name.lower() != operation))
    return ReadPlan(source=source, schema=schema), problems


DEBEZIUM = replace(
    KAFKA,
    declared=CdcSource,
    reader="helios.sources.changes.spark.debezium_reader:DebeziumReader",
    describe=_debezium,
    doctor_checks="helios.sources.changes.spark.doctor_checks:changes",
)

CHANGE_LOG = replace(
    KAFKA,
    declared=ChangeLogSource,
    reader="helios.sources.changes.spark.json_reader:ChangeLogReader",
    describe=_change_log,
    doctor_checks="helios.sources.changes.spark.doctor_checks:changes",
)
