"""Replicas of one catalog: which one a run uses, and that none shows a table as it was before the run saw it.

What is remembered of a table is its metadata file, its last sequence number and the time of its last update. A replica
shows a table as it is, or newer, when its metadata is that file or names it in its log of earlier ones. That log has an
end: where it does not reach back so far, both the sequence number and the time must have gone on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from helios.catalog.conf import replicas
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import RunError


class StaleReplica(RunError):
    """A replica shows older metadata than the run has seen: another one must be asked, or this one later."""


@dataclass(frozen=True)
class MetadataVersion:
    """How far a table's metadata had come when it was last seen."""

    uuid: str
    location: str
    sequence: int
    updated: int

    @classmethod
    def of(cls, metadata: Any) -> MetadataVersion:
        return cls(
            str(metadata.uuid()),
            str(metadata.metadataFileLocation() or ""),  # some servers do not tell
            int(metadata.lastSequenceNumber()),
            int(metadata.lastUpdatedMillis()),
        )

    def older(self, metadata: Any) -> bool:
        """Whether metadata is of an earlier time than this, or of another history."""
        now = MetadataVersion.of(metadata)
        if now.location and now.location == self.location:
            return False
        if now.uuid != self.uuid:
            return now.updated < self.updated  # a table that was made anew is the business of those who know it
        if now.updated < self.updated or now.sequence < self.sequence:
            return True
        log = list(metadata.previousFiles())
        if not self.location or any(str(entry.file()) == self.location for entry in log):
            return False
        return any(int(entry.timestampMillis()) < self.updated for entry in log) or now.updated == self.updated


@dataclass
class CatalogFreshness:
    """What this process has seen of a catalog that has replicas."""

    catalog: Catalog
    marks: dict[str, MetadataVersion] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seen(self, table: TableName, metadata: Any | None) -> None:
        """Compares what a replica shows of a table, None for no table, with what was seen, and remembers it.

        Raises:
            StaleReplica: It is older.
        """
        with self._lock:
            known = self.marks.get(table.within)
            if known is not None and (metadata is None or known.older(metadata)):
                shown = f"as of its sequence number {metadata.lastSequenceNumber()}" if metadata is not None else "not"
                raise StaleReplica(
                    f"catalog {table.catalog.name} at {table.catalog.option('uri')} shows {table.text} {shown}: this "
                    f"pipeline has seen {known.location}, of sequence number {known.sequence}.",
                    fix="wait until this replica has caught up, or take it out of `uri`.",
                )
            if metadata is not None:
                self.marks[table.within] = MetadataVersion.of(metadata)

    def restore(self, marks: Mapping[str, Any]) -> None:
        """Takes over what an earlier process has seen, where it is newer."""
        with self._lock:
            for name, one in marks.items():
                known, then = self.marks.get(name), MetadataVersion(**one)
                if known is None or known.updated < then.updated:
                    self.marks[name] = then


FRESHNESS: dict[Catalog, CatalogFreshness] = {}
"""By declared catalog, and by each of its replicas."""


def track_replicas(catalog: Catalog) -> None:
    """Watches all replicas of a catalog together, also with those of another one that shares some."""
    every = (catalog, *replicas(catalog))
    known = {id(watch): watch for watch in map(FRESHNESS.get, every) if watch is not None}
    watch, *others = list(known.values()) or [CatalogFreshness(catalog)]
    for other in others:
        watch.restore({name: asdict(mark) for name, mark in other.marks.items()})
    joined = [one for one, of in FRESHNESS.items() if id(of) in known]
    FRESHNESS.update(dict.fromkeys((*every, *joined), watch))


def verify(table: TableName, loaded: Any | None) -> None:
    """Notes how a table's catalog shows it; nothing for a catalog that has no replicas.

    Args:
        table: Its name.
        loaded: Iceberg's own table object; None where the catalog has no such table.

    Raises:
        StaleReplica: The run has seen a newer state of it.
    """
    watch = FRESHNESS.get(table.catalog)
    if watch is not None:
        watch.seen(table, loaded.operations().current() if loaded is not None else None)
