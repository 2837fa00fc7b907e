"""Freshness of a catalog's replicas: none may show an older state than the run has seen.

What is kept of a table is its metadata file, its last sequence number and the time of its last update. A replica is
fresh when its metadata is that file or names it in its log of earlier ones. That log has an end: where it does not
reach back so far, both the sequence number and the time must have gone on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from helios.catalog.conf import replicas
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import RunError
from helios.spark.jvm.types.iceberg import JavaTable, JavaTableMetadata


class StaleReplica(RunError):
    """A replica shows older metadata than the run has seen: ask another replica, or this one later."""


@dataclass(frozen=True)
class MetadataVersion:
    """The version of a table's metadata that was last seen."""

    uuid: str
    location: str
    sequence: int
    updated: int

    @classmethod
    def of(cls, metadata: JavaTableMetadata) -> MetadataVersion:
        return cls(
            str(metadata.uuid()),
            str(metadata.metadataFileLocation() or ""),  # some servers leave it out
            int(metadata.lastSequenceNumber()),
            int(metadata.lastUpdatedMillis()),
        )

    def newer_than(self, metadata: JavaTableMetadata) -> bool:
        """True if the given metadata is older than this version, or of another history."""
        now = MetadataVersion.of(metadata)
        if now.location and now.location == self.location:
            return False
        if now.uuid != self.uuid:
            return now.updated < self.updated  # a table that was replaced is the business of those who know it
        if now.updated < self.updated or now.sequence < self.sequence:
            return True
        log = list(metadata.previousFiles())
        if not self.location or any(str(entry.file()) == self.location for entry in log):
            return False
        return any(int(entry.timestampMillis()) < self.updated for entry in log) or now.updated == self.updated


@dataclass
class CatalogFreshness:
    """The metadata that this process has seen of a catalog that has replicas.

    Attributes:
        catalog: The catalog.
        marks: The last version seen of each table, by its name within the catalog.
    """

    catalog: Catalog
    marks: dict[str, MetadataVersion] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verify(self, table: TableName, metadata: JavaTableMetadata | None) -> None:
        """Compares a table's metadata with the version last seen, and keeps it.

        Args:
            table: The table.
            metadata: What a replica shows; None when it shows no such table.

        Raises:
            StaleReplica: It is older.
        """
        with self._lock:
            known = self.marks.get(table.within)
            if known is not None and (metadata is None or known.newer_than(metadata)):
                shown = f"as of its sequence number {metadata.lastSequenceNumber()}" if metadata is not None else "not"
                raise StaleReplica(
                    f"catalog {table.catalog.name} at {table.catalog.option('uri')} shows {table.text} {shown}: this "
                    f"pipeline has seen {known.location}, of sequence number {known.sequence}.",
                    fix="wait until this replica has caught up, or take it out of `uri`.",
                )
            if metadata is not None:
                self.marks[table.within] = MetadataVersion.of(metadata)

    def restore(self, marks: Mapping[str, Mapping[str, str | int]]) -> None:
        """Takes over the versions that an earlier process has seen, where they are newer.

        Args:
            marks: As `dataclasses.asdict` gives them, by table.
        """
        with self._lock:
            for name, mark in marks.items():
                known = self.marks.get(name)
                then = MetadataVersion(
                    str(mark["uuid"]), str(mark["location"]), int(mark["sequence"]), int(mark["updated"])
                )
                if known is None or known.updated < then.updated:
                    self.marks[name] = then


FRESHNESS: dict[Catalog, CatalogFreshness] = {}
"""By declared catalog, and by each of its replicas."""


def track_replicas(catalog: Catalog) -> None:
    """Tracks all replicas of a catalog together, also with those of another catalog that shares some."""
    every = (catalog, *replicas(catalog))
    known = {id(freshness): freshness for freshness in map(FRESHNESS.get, every) if freshness is not None}
    kept, *others = list(known.values()) or [CatalogFreshness(catalog)]
    for other in others:
        kept.restore({name: asdict(mark) for name, mark in other.marks.items()})
    joined = [name for name, of in FRESHNESS.items() if id(of) in known]
    FRESHNESS.update(dict.fromkeys((*every, *joined), kept))


def verify(table: TableName, loaded: JavaTable | None) -> None:
    """Refuses a table that its replica shows in an older state than seen; no-op for a catalog without replicas.

    Args:
        table: Its name.
        loaded: Iceberg's table object; None where the catalog has no such table.

    Raises:
        StaleReplica: The run has seen a newer state of it.
    """
    freshness = FRESHNESS.get(table.catalog)
    if freshness is not None:
        freshness.verify(table, loaded.operations().current() if loaded is not None else None)
