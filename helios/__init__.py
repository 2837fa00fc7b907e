"""Declarative Apache Iceberg pipelines on Spark.

    from helios import Iceberg, day, where

    orders = (
        Iceberg.source("sales.orders").incremental(poll=60)
        >> where("amount > 0")
        >> Iceberg.sink("sales.big_orders").partition_by(day("ts")).exactly_once()
    )

`helios run script.py` runs the pipeline. `import helios` starts no JVM, and imports neither pyspark nor PyIceberg.
"""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from helios.catalog import seam as _catalog
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.errors import (
    CheckFailed,
    CheckpointError,
    ConfigError,
    DeclarationError,
    EngineNeeded,
    EnvironmentProblem,
    HeliosError,
    InputError,
    LeaseError,
    LedgerError,
    NotFound,
    RunError,
    ScriptError,
)
from helios.iceberg import Iceberg
from helios.model import engine as _engine
from helios.model.expressions import col, fn, lit
from helios.model.flow import Pipeline, Pipelines, Stream, Transform, step
from helios.model.output import Console
from helios.model.partition import bucket, day, hour, identity, month, truncate, year
from helios.model.values import param
from helios.sources.changes.debezium import Cdc
from helios.sources.files.declare import Files
from helios.sources.kafka.declare import Kafka
from helios.sources.memory.declare import Memory
from helios.sources.webhook.declare import Webhook
from helios.steps.aggregate import aggregate, session_window, window
from helios.steps.cast import cast
from helios.steps.dedupe import dedupe
from helios.steps.drop import drop
from helios.steps.expect import expect
from helios.steps.explode import explode
from helios.steps.join import join
from helios.steps.rename import rename
from helios.steps.sample import sample
from helios.steps.select import select
from helios.steps.sql import sql
from helios.steps.union import union
from helios.steps.watermark import watermark
from helios.steps.where import where
from helios.steps.with_columns import with_columns
from helios.version import VERSION

if TYPE_CHECKING:
    from helios.catalog.seam import Operations
    from helios.engine import DefaultEngine
    from helios.table.snapshots import Snapshot, Table

__version__ = VERSION

__all__ = [
    "Catalog",
    "Cdc",
    "CheckFailed",
    "CheckpointError",
    "ConfigError",
    "Console",
    "DeclarationError",
    "EngineNeeded",
    "EnvironmentProblem",
    "Files",
    "HeliosError",
    "Iceberg",
    "InputError",
    "Kafka",
    "LeaseError",
    "LedgerError",
    "Memory",
    "NotFound",
    "Pipeline",
    "Pipelines",
    "RunError",
    "ScriptError",
    "Snapshot",
    "Storage",
    "Stream",
    "Table",
    "Transform",
    "Webhook",
    "aggregate",
    "bucket",
    "cast",
    "col",
    "day",
    "dedupe",
    "drop",
    "expect",
    "explode",
    "fn",
    "hour",
    "identity",
    "join",
    "lit",
    "month",
    "param",
    "rename",
    "sample",
    "select",
    "session_window",
    "sql",
    "step",
    "truncate",
    "union",
    "watermark",
    "where",
    "window",
    "with_columns",
    "year",
]


def __getattr__(name: str) -> object:
    # `Snapshot` and `Table` load at their first use, which makes `import helios` a quarter faster.
    if name in ("Snapshot", "Table"):
        from helios.table import snapshots

        return globals().setdefault(name, getattr(snapshots, name))
    raise AttributeError(f"module 'helios' has no attribute {name!r}")


def _load_engine() -> DefaultEngine:
    from helios.engine import DefaultEngine

    atexit.unregister(_note_at_exit)  # a script that checks, plans or runs a pipeline gets no note
    return DefaultEngine()


def _note_at_exit() -> None:
    from helios.script import note_unrun_pipelines

    note_unrun_pipelines()


def _load_operations() -> Operations:
    from helios.catalog import operations

    return operations


_engine.provide(_load_engine)
atexit.register(_note_at_exit)
_catalog.provide(_load_operations)
