"""The lake of a rehearsal: a catalog in a temporary folder, and in it the target as it was, by its metadata alone."""

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
"""The name of a pipeline in its rehearsal: the records and stamps of the real one are not its own."""
ELSEWHERE = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties that would send files out of the lake."""
FOREVER = 1e12
"""Seconds: what is remembered of keys does not expire in a rehearsal, as it had not then."""

Metadata: TypeAlias = "dict[str, Any]"
"""The metadata file of a table, as JSON values."""


def lake_in(folder: Path) -> Catalog:
    """A catalog in a folder; each has a name of its own, since Spark goes on with the first catalog of a name."""
    return Catalog.local(f"rehearsal_{secrets.token_hex(4)}", path=folder)


def rehearsed(plan: Plan, lake: Catalog, folder: Path) -> Plan:
    """The plan that reads what the pipeline reads, and writes into a lake.

    Args:
        plan: The pipeline.
        lake: The lake.
        folder: Where its checkpoint is.
    """
    sink, table, rejected = plan.write.iceberg, plan.write.table, plan.write.quarantine
    mode = replace(sink.mode, tombstones=FOREVER) if sink.mode.upsert is not None else sink.mode  # type: ignore[call-arg]
    here = replace(
        sink, catalog=lake, mode=mode, branch_name=None, audits=(), publishes=False, checkpoint_location=None,
        maintenance=None, creates=True,
    )  # fmt: skip
    write = replace(
        plan.write,
        table=TableName(lake, table.namespace, table.table),
        sink=here,
        quarantine=TableName(lake, ("helios_rejected",), rejected.table) if rejected is not None else None,
        pipelines=(NAME, *plan.write.pipelines),
    )
    return replace(
        plan,
        pipeline=NAME,
        was=None,
        write=write,
        checkpoint=folder.as_uri(),
        former_checkpoint=None,
        catalogs=(*plan.catalogs, lake),
        engine=Engine(),
    )


def by_real_names(text: str, plan: Plan, ours: Plan) -> str:
    """A text of a rehearsal with the names of the real tables and of the real pipeline.

    Args:
        text: The text.
        plan: The pipeline.
        ours: Its plan in the lake.
    """
    pairs = [(ours.write.table.text, plan.write.table.text), (NAME, plan.pipeline)]
    if ours.write.quarantine is not None and plan.write.quarantine is not None:
        pairs.append((ours.write.quarantine.text, plan.write.quarantine.text))
    for name, real in pairs:
        text = text.replace(name, real)
    return text


@contextmanager
def errors_by_real_names(plan: Plan, ours: Plan) -> Iterator[None]:
    """Has errors name the real tables, of which alone the user knows."""
    try:
        yield
    except HeliosError as error:
        for one in (error, *(error.problems if isinstance(error, CheckFailed) else ())):
            one.what = by_real_names(one.what, plan, ours)
            one.fix = by_real_names(one.fix, plan, ours) if one.fix is not None else None
        raise


def declare(spark: SparkSession, lake: Catalog) -> None:
    """Makes a lake known to a session."""
    prepare(lake)
    declare_catalog(spark, lake)


def clone(spark: SparkSession, real: JavaTable, name: TableName, folder: Path, base: int | None) -> JavaTable:
    """A table of the lake that begins with a state of another one: it has that one's files, and writes its own.

    Args:
        spark: The session.
        real: The other table; nothing of it is written.
        name: The name in the lake.
        folder: Where its metadata and files are put.
        base: The snapshot whose state it has; None for none.

    Raises:
        InputError: The files of the state are in a storage that the lake does not read.
    """
    if base is not None and urlsplit(real.location()).scheme not in ("", "file"):
        raise InputError(
            f"{real.name()} is at {real.location()}: a rehearsal begins with the target as it was, and can do so only "
            "with files on a local disk yet.",
            fix="rehearse a pipeline that appends, or test this one with helios.testing.",
        )
    jvm = classes()
    text = jvm.org.apache.iceberg.TableMetadataParser.toJson(real.operations().current())
    place = folder / "tables" / uuid.uuid4().hex
    metadata = as_of(json.loads(text), place.as_uri(), base)
    file = place / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(metadata))
    catalog, identifier = tables.catalog_of(spark, name)
    if not catalog.namespaceExists(identifier.namespace()):
        catalog.createNamespace(identifier.namespace())
    return catalog.registerTable(identifier, file.as_uri())


def as_of(metadata: Metadata, location: str, base: int | None) -> Metadata:
    """The metadata of a table whose only history is that of one snapshot.

    Args:
        metadata: The metadata of the other table.
        location: The location of the table.
        base: The snapshot; None for a table without rows.

    Examples:
        >>> given = {"table-uuid": "u", "location": "/a", "properties": {"write.data.path": "/b"}, "snapshots": [
        ...     {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 5}, {"snapshot-id": 1, "timestamp-ms": 4},
        ...     {"snapshot-id": 3, "parent-snapshot-id": 2, "timestamp-ms": 6}], "current-snapshot-id": 3}
        >>> made = as_of(given, "/c", 2)
        >>> [one["snapshot-id"] for one in made["snapshots"]], made["current-snapshot-id"], made["properties"]
        ([2, 1], 2, {'gc.enabled': 'false'})
    """
    known = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    kept = []
    at = known.get(base) if base is not None else None
    while at is not None:
        kept.append(at)
        at = known.get(at.get("parent-snapshot-id"))
    properties = {k: v for k, v in (metadata.get("properties") or {}).items() if k not in ELSEWHERE}
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
