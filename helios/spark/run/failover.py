"""Failover between the replicas of a catalog: chooses the replica that a run uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product

from pyspark.sql import SparkSession

from helios.catalog.conf import replicas
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.plan.nodes import Plan
from helios.spark.checkpoint.small_files import SmallFiles
from helios.spark.iceberg import freshness
from helios.spark.session import session as sessions

SEEN = "helios/seen.json"
"""The checkpoint file with the freshness marks: the newest table metadata that the replicas have returned."""


class ReplicaChoice:
    """The replica of each catalog that a run uses.

    Args:
        plan: The pipeline, with its catalogs as declared.
    """

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan = plan
        self._spark = spark
        replicated = [catalog for catalog in plan.catalogs if len(replicas(catalog)) > 1]
        self._combinations = [
            dict(zip(replicated, chosen, strict=True)) for chosen in product(*map(replicas, replicated))
        ]
        for catalog in replicated:
            freshness.track_replicas(catalog)
        self._index = 0
        self._stored_marks: Mapping[str, object] = {}
        self.plan = _with_replicas(plan, self._combinations[0])
        self.spark = spark

    def __len__(self) -> int:
        return len(self._combinations)

    @property
    def requests_tokens(self) -> bool:
        """True if a catalog requests tokens: a new session then gets new ones."""
        return any(catalog.option("credential") is not None for catalog in self._plan.catalogs)

    def switch(self) -> None:
        """Switches to the next replica, in a new session, because Spark caches the catalogs of a session.

        If there is only one replica, the new session serves to get new tokens. Without tokens, nothing happens.
        """
        if len(self) == 1 and not self.requests_tokens:
            return
        self._index = (self._index + 1) % len(self)
        self.plan = _with_replicas(self._plan, self._combinations[self._index])
        self.spark = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        sessions.declare_catalogs(self.spark, [self.plan])

    def addresses(self) -> str:
        """The addresses of the chosen replicas."""
        return ", ".join(str(catalog.option("uri")) for catalog in self._combinations[self._index].values())

    # freshness marks in the checkpoint

    def restore_freshness(self, files: SmallFiles) -> None:
        """Restores the freshness marks that earlier processes stored."""
        fix = "delete it: a replica with old metadata is then not noticed until another replica has answered."
        marks = (files.read_json(SEEN, fix) or {}) if len(self) > 1 else {}
        for catalog in self._combinations[0]:
            freshness.FRESHNESS[catalog].restore(marks.get(catalog.name, {}))

    def store_freshness(self, files: SmallFiles) -> None:
        """Stores the freshness marks for later processes, if they have changed."""
        if len(self) == 1:
            return
        known = [freshness.FRESHNESS[catalog] for catalog in self._combinations[0]]
        marks = {
            each.catalog.name: {name: asdict(mark) for name, mark in sorted(each.versions.items())} for each in known
        }
        if marks != self._stored_marks:
            files.write(SEEN, json.dumps(marks))
            self._stored_marks = marks


def _with_replicas(plan: Plan, chosen: Mapping[Catalog, Catalog]) -> Plan:
    """A plan with each catalog replaced by the chosen replica."""
    if not chosen:
        return plan

    def on_replica(table: TableName) -> TableName:
        return replace(table, catalog=chosen.get(table.catalog, table.catalog))

    write = plan.write
    quarantine_table = on_replica(write.quarantine) if write.quarantine is not None else None
    return replace(
        plan,
        reads=tuple(replace(r, table=on_replica(r.table)) if r.table is not None else r for r in plan.reads),
        write=replace(write, table=on_replica(write.table), quarantine=quarantine_table),
        catalogs=tuple(chosen.get(catalog, catalog) for catalog in plan.catalogs),
        all_catalogs=tuple(chosen.get(catalog, catalog) for catalog in plan.all_catalogs),
    )
