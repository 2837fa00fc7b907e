"""Changes of databases, and change logs, as kinds of sources: topics whose rows carry their order."""

from __future__ import annotations

from dataclasses import replace

from helios.errors import HeliosError
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import Schema
from helios.sources.changes.checks import change_log_problems, one_table
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.json import ChangeLogSource
from helios.sources.common.describe import declared_columns
from helios.sources.kafka.checks import topic_problems
from helios.sources.kafka.kind import KAFKA


def _debezium(source: CdcSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source)
    problems = topic_problems(source.kafka, schema or Schema(()))
    return ReadPlan(source=source, schema=schema), [*problems, *([] if around.mirrored else one_table(source))]


def _change_log(source: ChangeLogSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    columns = declared_columns(source.kafka)
    problems = [*topic_problems(source.kafka, columns), *one_table(source), *change_log_problems(source, columns)]
    if columns is not None:
        columns = Schema(tuple(column for column in columns.columns if column.name.lower() != source.op_column.lower()))
    return ReadPlan(source=source, schema=columns), problems


DEBEZIUM = replace(
    KAFKA,
    declared=CdcSource,
    reader="helios.sources.changes.spark.debezium_reader:DebeziumReader",
    describe=_debezium,
    looks="helios.sources.changes.spark.looks:changes",
)

CHANGE_LOG = replace(
    KAFKA,
    declared=ChangeLogSource,
    reader="helios.sources.changes.spark.json_reader:ChangeLogReader",
    describe=_change_log,
    looks="helios.sources.changes.spark.looks:changes",
)
