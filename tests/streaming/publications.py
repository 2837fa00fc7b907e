"""Publications of branches, by PyIceberg where it writes the table's format, and else by Spark, as the command does."""

from __future__ import annotations

from typing import Any

from helios.catalog.names import TableName
from helios.errors import EngineNeeded
from helios.spark.maintenance import publish as java
from helios.table.publish import Publication, plan_publication, publish


def published(world: Any, branch: str = "staging") -> Publication:
    """Publishes a branch of a.t."""
    table = world.load("a.t")
    try:
        return publish(table, branch)
    except EngineNeeded:
        done = plan_publication(table, branch)
        java.publish(world.spark, TableName(world.catalog, ("a",), "t"), done)
        return done
