"""Refuses a replica of a catalog that shows an older state of a table than the run has already seen.

Helios remembers the metadata file, the last sequence number and the time of the last update of each table. A replica is
fresh if it shows the same metadata file, or if its metadata log names that file. The metadata log is limited: if it
does not reach back to the remembered time, the replica is fresh if its last update is later and its sequence number is
not lower.
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
    """A replica shows older metadata than the run has seen. Another replica, or a later request, may succeed."""


@dataclass(frozen=True)
class MetadataVersion:
    """The version of a table's metadata that was last seen.

    Attributes:
        location: The metadata file; empty if the server does not name it.
        updated: The time of the last update, in milliseconds since 1970.
    """

    uuid: str
    location: str
    sequence: int
    updated: int

    @classmethod
    def of(cls, metadata: JavaTableMetadata) -> MetadataVersion:
        return cls(
            str(metadata.uuid()),
            str(metadata.metadataFileLocation() or ""),
            int(metadata.lastSequenceNumber()),
            int(metadata.lastUpdatedMillis()),
        )

    def newer_than(self, metadata: JavaTableMetadata) -> bool:
        """True if the given metadata is older than this version, or is of another history of the same table.

        A table that was recreated later, with another UUID, is not older.
        """
        shown = MetadataVersion.of(metadata)
        if shown.location and shown.location == self.location:
            return False
        if shown.uuid != self.uuid:
            return shown.updated < self.updated  # callers that know the UUID refuse a recreated table
        if shown.updated < self.updated or shown.sequence < self.sequence:
            return True
        log = list(metadata.previousFiles())
        if not self.location or any(str(entry.file()) == self.location for entry in log):
            return False
        # A log that reaches back to a time before this version would name this version's file.
        return any(int(entry.timestampMillis()) < self.updated for entry in log) or shown.updated == self.updated


@dataclass
class CatalogFreshness:
    """The newest metadata that this process has seen of the tables of a catalog with replicas.

    Attributes:
        versions: The last version seen of each table, by its name within the catalog.
    """

    catalog: Catalog
    versions: dict[str, MetadataVersion] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verify(self, table: TableName, metadata: JavaTableMetadata | None) -> None:
        """Compares a table's metadata with the version last seen, and then remembers the metadata as last seen.

        Args:
            metadata: The metadata that a replica shows; None when it shows no such table.

        Raises:
            StaleReplica: The metadata is older than the version that was last seen.
        """
        with self._lock:
            seen = self.versions.get(table.name_in_catalog)
            if seen is not None and (metadata is None or seen.newer_than(metadata)):
                shows = f"does not show {table.text}"
                if metadata is not None:
                    shows = f"shows {table.text} as of its sequence number {metadata.lastSequenceNumber()}"
                raise StaleReplica(
                    f"catalog {table.catalog.name} at {table.catalog.option('uri')} {shows}: this pipeline has seen "
                    f"{seen.location or 'metadata'}, of sequence number {seen.sequence}.",
                    fix="wait until this replica has caught up, or take it out of `uri`.",
                )
            if metadata is not None:
                self.versions[table.name_in_catalog] = MetadataVersion.of(metadata)

    def restore(self, versions: Mapping[str, Mapping[str, str | int]]) -> None:
        """Adopts the versions that an earlier process has seen, if they are newer than those of this process.

        Args:
            versions: The versions by table, as `dataclasses.asdict` returns them.
        """
        with self._lock:
            for name, version in versions.items():
                seen = self.versions.get(name)
                earlier = MetadataVersion(
                    str(version["uuid"]), str(version["location"]), int(version["sequence"]), int(version["updated"])
                )
                if seen is None or seen.updated < earlier.updated:
                    self.versions[name] = earlier


FRESHNESS: dict[Catalog, CatalogFreshness] = {}
"""The freshness object of each declared catalog that has replicas. Its replicas share the object."""


def track_replicas(catalog: Catalog) -> None:
    """Gives one freshness object to a catalog, its replicas, and other catalogs that share a replica."""
    members = (catalog, *replicas(catalog))
    tracked = {id(freshness): freshness for freshness in map(FRESHNESS.get, members) if freshness is not None}
    shared, *others = list(tracked.values()) or [CatalogFreshness(catalog)]
    for other in others:
        shared.restore({name: asdict(version) for name, version in other.versions.items()})
    joined = [member for member, freshness in FRESHNESS.items() if id(freshness) in tracked]
    FRESHNESS.update(dict.fromkeys((*members, *joined), shared))


def verify(table: TableName, loaded: JavaTable | None) -> None:
    """Refuses a table that a replica shows in an older state than seen before; no-op for a catalog without replicas.

    Args:
        loaded: Iceberg's table object; None when the replica shows no such table.

    Raises:
        StaleReplica: The run has seen a newer state of the table.
    """
    freshness = FRESHNESS.get(table.catalog)
    if freshness is not None:
        freshness.verify(table, loaded.operations().current() if loaded is not None else None)
