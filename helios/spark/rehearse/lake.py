"""The lake of a rehearsal: a catalog in a temporary folder.

Its table has a copy of the target's metadata as of a snapshot, and reads the target's own files.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from helios.catalog.connections import prepare
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import CheckFailed, HeliosError, InputError
from helios.plan.native.engine import Engine
from helios.plan.nodes import Plan
from helios.spark.iceberg import tables
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.session.session import declare_catalog

NAME = "helios.rehearsal"
"""The pipeline's name during its rehearsal. It is not the real name: otherwise, the rehearsal would take the ledger
records and stamped snapshots of the real pipeline for its own."""
PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties that would place files outside of the lake."""
FOREVER = 1e12
"""The seconds for which a rehearsal remembers deletes, since no delete had expired when the commits were made."""

Metadata: TypeAlias = "dict[str, Any]"
"""The metadata file of a table, as JSON values."""


def lake_in(folder: Path) -> Catalog:
    """A catalog in a folder. Its name is random, because Spark keeps the first catalog that it loads under a name."""
    return Catalog.local(f"rehearsal_{secrets.token_hex(4)}", path=folder)


def rehearsal_plan(plan: Plan, lake: Catalog, folder: Path) -> Plan:
    """A copy of a plan: it has the same sources and steps, but writes into a lake, with its checkpoint in `folder`."""
    sink, table, quarantine = plan.write.iceberg, plan.write.table, plan.write.quarantine
    mode = replace(sink.mode, tombstones=FOREVER) if sink.mode.upsert is not None else sink.mode  # type: ignore[call-arg]
    lake_sink = replace(
        sink, catalog=lake, mode=mode, branch_name=None, audits=(), publishes=False, checkpoint_location=None,
        maintenance=None, creates=True,
    )  # fmt: skip
    write = replace(
        plan.write,
        table=TableName(lake, table.namespace, table.table),
        sink=lake_sink,
        quarantine=TableName(lake, ("helios_rejected",), quarantine.table) if quarantine is not None else None,
        pipeline_names=(NAME, *plan.write.pipeline_names),
    )
    return replace(
        plan,
        pipeline=NAME,
        was=None,
        write=write,
        checkpoint=f"file:{folder}",
        former_checkpoint=None,
        catalogs=(*plan.catalogs, lake),
        engine=Engine(),
    )


def by_real_names(text: str, plan: Plan, lake_plan: Plan) -> str:
    """Replaces the names of the rehearsal's tables and pipeline in a text by the real names."""
    pairs = [(lake_plan.write.table.text, plan.write.table.text), (NAME, plan.pipeline)]
    if lake_plan.write.quarantine is not None and plan.write.quarantine is not None:
        pairs.append((lake_plan.write.quarantine.text, plan.write.quarantine.text))
    for name, real in pairs:
        text = text.replace(name, real)
    return text


@contextmanager
def errors_by_real_names(plan: Plan, lake_plan: Plan) -> Iterator[None]:
    """Replaces the lake's names in errors by the real ones, which the user knows."""
    try:
        yield
    except HeliosError as error:
        for problem in (error, *(error.problems if isinstance(error, CheckFailed) else ())):
            problem.what = by_real_names(problem.what, plan, lake_plan)
            problem.fix = by_real_names(problem.fix, plan, lake_plan) if problem.fix is not None else None
        raise


def declare(spark: SparkSession, lake: Catalog) -> None:
    prepare(lake)
    declare_catalog(spark, lake)


def clone(spark: SparkSession, real: JavaTable, name: TableName, folder: Path, base: int | None) -> JavaTable:
    """Registers a table in the lake that starts at a snapshot of another table and shares that table's files.

    Args:
        real: The other table, which is only read.
        folder: The folder for the new table's metadata and files.
        base: The snapshot; None to start without rows.

    Raises:
        InputError: The files of the snapshot are not on the local disk.
    """
    if base is not None and urlsplit(real.location()).scheme not in ("", "file"):
        raise InputError(
            f"{real.name()} is at {real.location()}: this rehearsal would start from an earlier snapshot of the "
            "target, which is supported only for files on the local disk.",
            fix="rehearse a pipeline that appends, or test this one with helios.testing.",
        )
    jvm = classes()
    text = jvm.org.apache.iceberg.TableMetadataParser.toJson(real.operations().current())
    location = folder / "tables" / uuid.uuid4().hex
    metadata = as_of(json.loads(text), f"file:{location}", base)
    file = location / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(metadata))
    catalog, identifier = tables.catalog_of(spark, name)
    if not catalog.namespaceExists(identifier.namespace()):
        catalog.createNamespace(identifier.namespace())
    return catalog.registerTable(identifier, f"file:{file}")


def as_of(metadata: Metadata, location: str, base: int | None) -> Metadata:
    """The metadata of a new table whose history is that of another table up to a snapshot.

    Args:
        base: The snapshot; None for a new table without rows.

    Examples:
        >>> metadata = {"table-uuid": "u", "location": "/a", "properties": {"write.data.path": "/b"}, "snapshots": [
        ...     {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 5}, {"snapshot-id": 1, "timestamp-ms": 4},
        ...     {"snapshot-id": 3, "parent-snapshot-id": 2, "timestamp-ms": 6}], "current-snapshot-id": 3}
        >>> copy = as_of(metadata, "/c", 2)
        >>> [each["snapshot-id"] for each in copy["snapshots"]], copy["current-snapshot-id"], copy["properties"]
        ([2, 1], 2, {'gc.enabled': 'false'})
    """
    snapshots = {raw["snapshot-id"]: raw for raw in metadata.get("snapshots") or ()}
    kept = []
    snapshot = snapshots.get(base) if base is not None else None
    while snapshot is not None:
        kept.append(snapshot)
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))
    properties = {k: v for k, v in (metadata.get("properties") or {}).items() if k not in PATH_PROPERTIES}
    properties.pop("write.location-provider.impl", None)
    refs = {"main": {"snapshot-id": base, "type": "branch"}} if kept else {}
    return {
        **metadata,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "properties": {**properties, "gc.enabled": "false"},
        "snapshots": kept,
        "current-snapshot-id": base if kept else -1,
        "refs": refs,
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
