"""Failover between the replicas of a catalog: which one a run uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from pyspark.sql import SparkSession

from helios.catalog.conf import replicas
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import HadoopFiles
from helios.spark.iceberg.freshness import FRESHNESS, track_replicas
from helios.spark.session import session as sessions

SEEN = "helios/seen.json"
"""The file of a checkpoint that keeps what was seen of each replica."""


class Choice:
    """The replica of each catalog that a run uses.

    Args:
        plan: What runs, with the catalogs as they were declared.
        spark: The session of the run.
    """

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self._plan = plan
        self._spark = spark
        several = [catalog for catalog in plan.catalogs if len(replicas(catalog)) > 1]
        self._ways = [dict(zip(several, way, strict=True)) for way in product(*map(replicas, several))]
        for catalog in several:
            track_replicas(catalog)
        self._at = 0
        self._kept: dict[str, Any] = {}
        self.plan = _on(plan, self._ways[0])
        self.spark = spark

    def __len__(self) -> int:
        return len(self._ways)

    @property
    def renews(self) -> bool:
        """Whether a catalog asks for tokens, as it does when it is made."""
        return any(catalog.option("credential") is not None for catalog in self._plan.catalogs)

    def next(self) -> None:
        """Takes the next replica: in a session of its own, as Spark keeps the catalogs that it has made."""
        if len(self) == 1 and not self.renews:
            return
        self._at = (self._at + 1) % len(self)
        self.plan = _on(self._plan, self._ways[self._at])
        self.spark = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        sessions.declare_catalogs(self.spark, [self.plan])

    def addresses(self) -> str:
        """Where the chosen replicas are."""
        return ", ".join(str(one.option("uri")) for one in self._ways[self._at].values())

    # what was seen, in the checkpoint

    def recall(self, files: HadoopFiles) -> None:
        """Reads what earlier processes have seen."""
        text = files.read(SEEN) if len(self) > 1 else None
        marks = json.loads(text) if text else {}
        for catalog in self._ways[0]:
            FRESHNESS[catalog].restore(marks.get(catalog.name, {}))

    def keep(self, files: HadoopFiles) -> None:
        """Writes down what was seen since, for later processes."""
        if len(self) == 1:
            return
        watches = [FRESHNESS[catalog] for catalog in self._ways[0]]
        marks = {w.catalog.name: {name: asdict(mark) for name, mark in sorted(w.marks.items())} for w in watches}
        if marks != self._kept:
            files.write(SEEN, json.dumps(marks))
            self._kept = marks


def _on(plan: Plan, way: Mapping[Catalog, Catalog]) -> Plan:
    """A plan whose catalogs are these replicas of them."""
    if not way:
        return plan

    def moved(table: TableName) -> TableName:
        return replace(table, catalog=way.get(table.catalog, table.catalog))

    write = plan.write
    aside = moved(write.quarantine) if write.quarantine is not None else None
    return replace(
        plan,
        reads=tuple(replace(r, table=moved(r.table)) if r.table is not None else r for r in plan.reads),
        write=replace(write, table=moved(write.table), quarantine=aside),
        catalogs=tuple(way.get(one, one) for one in plan.catalogs),
        neighbours=tuple(way.get(one, one) for one in plan.neighbours),
    )
