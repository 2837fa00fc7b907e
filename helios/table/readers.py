"""Finds the readers of a table, and how far each has read, from their checkpoints; without a JVM.

The next batch of a reader begins at the snapshot at which its last committed batch ended. Spark and Helios
(`helios.spark.checkpoint.files`) write these files:

<checkpoint>/
  helios/identity.json   the pipeline, how it reads, and the names of its followed sources in order
  helios/start.json      the starting positions of those sources
  commits/N              an empty marker for each committed batch N
  offsets/N              the position at which batch N ended in each source, one per line, in the order of the sources
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from helios.errors import CheckpointError, RunError
from helios.sources.common.position import SourcePosition
from helios.sources.kinds import position_of
from helios.table.storage import Folder

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from helios.catalog.spec import Catalog

CHECKPOINTS = "_helios/checkpoints"
"""The folder of a warehouse in which pipelines keep their checkpoints by default."""

VERSION = 1
"""The newest version of `identity.json` that this code reads."""


@dataclass(frozen=True)
class Reader:
    """A pipeline that follows a table.

    Attributes:
        pipeline: The name of the pipeline; for a stream of another program, the location of its checkpoint.
        location: The checkpoint.
        snapshot: The last snapshot that it has read, or its starting snapshot; None if it has neither.
    """

    pipeline: str
    location: str
    snapshot: int | None

    @property
    def name(self) -> str:
        """The reader as messages name it."""
        return self.pipeline if self.pipeline == self.location else f"{self.pipeline} ({self.location})"

    @property
    def progress(self) -> str:
        """The position of the reader, as messages word it."""
        return f"is at snapshot {self.snapshot}" if self.snapshot is not None else "has read nothing yet"


@dataclass(frozen=True)
class Warehouse:
    """A warehouse that may have checkpoints.

    Attributes:
        catalog: The name of the catalog.
        uri: The location, a URI or an absolute path.
        properties: PyIceberg's properties of the catalog, which open its storage.
    """

    catalog: str
    uri: str
    properties: Mapping[str, str]


def warehouses(catalogs: Iterable[Catalog]) -> list[Warehouse]:
    """The warehouses of catalogs, without those whose location only a server knows: these have no checkpoints."""
    from helios.catalog.conf import pyiceberg_properties, warehouse

    locations = [(catalog, warehouse(catalog) or "") for catalog in catalogs]
    return [
        Warehouse(catalog.name, uri, pyiceberg_properties(catalog))
        for catalog, uri in locations
        if "://" in uri or uri.startswith(("/", "file:"))  # other values are names that only a server can resolve
    ]


def readers_of(
    table: str, metadata: TableMetadata, places: Iterable[Warehouse], locations: Sequence[str] = ()
) -> list[Reader]:
    """Every known reader of a table.

    Args:
        table: The table's full name, catalog first.
        metadata: The table's metadata. Its UUID shows which checkpoints have a former name of the table. Its snapshots
            show which checkpoints have another name for the catalog.
        places: The warehouses to search for checkpoints.
        locations: The locations of further checkpoints, each of a reader of this table.

    Raises:
        CheckpointError: A checkpoint cannot be read, or one of `locations` has no reader of this table.
        RunError: A warehouse or a checkpoint cannot be reached.
    """
    places = list(places)
    wanted = _FollowedTable(table, str(metadata.table_uuid), frozenset(raw.snapshot_id for raw in metadata.snapshots))
    by_location: dict[str, list[Reader]] = {}
    for folder in _checkpoints_in(places):
        by_location.setdefault(folder.location, _readers(folder, wanted))
    for location in locations:
        folder = _opened(location, places)
        by_location[folder.location] = _readers_at(folder, wanted)
    return [reader for readers in by_location.values() for reader in readers]


class _FollowedTable(NamedTuple):
    """The table whose readers are searched, with its UUID and its retained snapshots."""

    name: str
    uuid: str
    snapshots: frozenset[int]


def checkpoint_text(location: str, properties: Mapping[str, str], name: str) -> str | None:
    """The text of a file in a checkpoint; None if there is none. Raises RunError if the storage cannot be read."""
    return Folder(location, properties).text(name)


def has_begun(location: str, properties: Mapping[str, str]) -> bool:
    """True if the pipeline of a checkpoint has begun to read its sources; False if that is unknown."""
    try:
        return Folder(location, properties).text("helios/start.json") is not None
    except RunError:
        return False


def last_position(location: str, properties: Mapping[str, str], index: int) -> SourcePosition | None:
    """The position of a followed source in a checkpoint: the end of its last batch, or else its starting position.

    The result is None if the checkpoint has neither. `index` counts only followed sources.

    Raises:
        CheckpointError: The checkpoint cannot be read.
        RunError: The storage cannot be read.
    """
    folder = Folder(location, properties)
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else []
    if index < len(ends) and ends[index] is not None:
        return _parsed(folder, committed[-1], ends[index])
    starts = _starts(folder) or []
    return starts[index].position if index < len(starts) else None


def checkpoints_of(pipeline: str, places: Iterable[Warehouse], locations: Sequence[str] = ()) -> list[Folder]:
    """Opens the checkpoints of a pipeline: those at `locations`, or else those in the warehouses.

    Raises:
        CheckpointError: A checkpoint cannot be read.
        RunError: A warehouse cannot be reached.
    """
    places = list(places)
    if locations:
        return [_opened(location, places) for location in locations]
    identities = ((folder, _identity(folder)) for folder in _checkpoints_in(places))
    return [folder for folder, identity in identities if identity is not None and identity["pipeline"] == pipeline]


def _checkpoints_in(places: Iterable[Warehouse]) -> Iterator[Folder]:
    for place in places:
        base = f"{place.uri.rstrip('/')}/{CHECKPOINTS}"
        for name in Folder(base, place.properties, f"catalog {place.catalog}").folders():
            yield Folder(f"{base}/{name}", place.properties)


def _opened(location: str, places: Sequence[Warehouse]) -> Folder:
    """Opens a checkpoint with the properties of the warehouse that contains it, or else of the first warehouse."""
    containing = [place for place in places if location.startswith(f"{place.uri.rstrip('/')}/")]
    candidates = [*containing, *places]
    return Folder(location, candidates[0].properties if candidates else {})


def snapshots_needed_by(reader: Reader, parents: Mapping[int, int | None]) -> frozenset[int]:
    """Returns the snapshots that a reader needs: the last snapshot that it has read, and all later ones.

    Args:
        parents: The parent of each retained snapshot of the table.

    Returns:
        Ids of retained snapshots; empty if neither the reader's last snapshot nor a child of it is retained.
    """
    if reader.snapshot is None:
        return frozenset(parents)
    children: dict[int | None, list[int]] = {}
    for snapshot, parent in parents.items():
        children.setdefault(parent, []).append(snapshot)
    reached, pending = set(), [reader.snapshot]
    while pending:
        snapshot = pending.pop()
        reached.add(snapshot)
        pending += children.get(snapshot, [])
    return frozenset(reached & parents.keys())


def _readers_at(folder: Folder, wanted: _FollowedTable) -> list[Reader]:
    """Returns the readers in a checkpoint that the user names. Refuses a checkpoint without a reader of the table."""
    if folder.text("helios/identity.json") is None and folder.batches("offsets"):
        return [_foreign(folder, wanted)]
    identity = _identity(folder)
    if identity is None:
        raise CheckpointError(f"readers: {folder.location} is not a checkpoint.", fix="give the checkpoint's folder.")
    readers = _readers(folder, wanted)
    if not readers:
        sources = ", ".join(identity["sources"])
        raise CheckpointError(
            f"readers: the checkpoint {folder.location} of {identity['pipeline']} does not follow {wanted.name}"
            f"{f', but {sources}' if sources else ''}.",
            fix="leave it out, or give the checkpoint of a reader of this table.",
        )
    return readers


def _readers(folder: Folder, wanted: _FollowedTable) -> list[Reader]:
    """The readers of a table in one checkpoint: one for each source that follows the table."""
    identity = _identity(folder)
    if identity is None or identity["path"] == "batch":  # a batch pipeline needs no older snapshot
        return []
    sources, starts = identity["sources"], _starts(folder) or []
    readers = []
    for index, source in enumerate(sources):
        same_uuid = index < len(starts) and starts[index].uuid == wanted.uuid
        exact = source == wanted.name or same_uuid
        only_catalog_differs = source.partition(".")[2] == wanted.name.partition(".")[2]
        if not exact and not only_catalog_differs:
            continue
        if not exact and index < len(starts) and starts[index].uuid is None:
            continue  # not a table (a start without a UUID), but perhaps a topic with a name like a table's
        snapshot = _last_snapshot(folder, index, len(sources))
        if exact or snapshot in wanted.snapshots:
            readers.append(Reader(identity["pipeline"], folder.location, snapshot))
    return readers


def _identity(folder: Folder) -> dict[str, Any] | None:
    """The identity of a checkpoint; None for a folder that no pipeline has used."""
    text = folder.text("helios/identity.json")
    if text is None:
        if folder.batches("offsets"):
            raise _unreadable(folder, "it holds a stream's progress but no helios/identity.json")
        return None
    try:
        identity = json.loads(text)
        version = int(identity["v"])
        known = {
            "pipeline": str(identity["pipeline"]),
            "path": str(identity["path"]),
            "sources": [str(source) for source in identity["sources"]],
        }
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, f"helios/identity.json: {error!r}") from error
    if version > VERSION:
        why = f"it was written by a newer Helios (it has version {version}, and this Helios reads up to {VERSION})"
        raise _unreadable(folder, why, "upgrade helios.")
    return known


def _last_snapshot(folder: Folder, index: int, sources: int) -> int | None:
    """The last snapshot that was read from a source, or its starting snapshot; None if there is neither."""
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else [None] * sources
    starts = _starts(folder)
    if starts is not None and len(starts) != sources:
        raise _unreadable(folder, f"helios/start.json: {len(starts)} starting positions for {sources} sources")
    if len(ends) != sources:
        raise _unreadable(folder, f"offsets/{committed[-1]} has {len(ends)} sources, and the pipeline has {sources}")
    end = ends[index]
    offset = _parsed(folder, committed[-1], end) if end is not None else None
    if (offset is None or offset.snapshot is None) and starts is not None:
        offset = starts[index].position
    return offset.snapshot if offset is not None else None


def _offsets(folder: Folder, batch: int) -> list[dict[str, Any] | None]:
    lines = (folder.text(f"offsets/{batch}") or "").splitlines()
    try:
        if not lines or lines[0] != "v1":
            raise ValueError("not an offset log of version 1")
        return [None if line == "-" else json.loads(line) for line in lines[2:]]
    except ValueError as error:
        raise _unreadable(folder, f"offsets/{batch} is missing or damaged: {error}") from error


def _parsed(folder: Folder, batch: int, end: object) -> SourcePosition:
    """The position of a source in the log of a batch."""
    try:
        known = position_of(end)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(folder, f"offsets/{batch} is damaged: {error!r}") from error
    if known is None:
        raise _unreadable(folder, f"offsets/{batch} has a position of no known kind of source: {end}")
    _, position = known
    return position


class _Start(NamedTuple):
    """The start of a followed source: its UUID if it is a table, and its position if its kind is known."""

    uuid: str | None
    position: SourcePosition | None


def _starts(folder: Folder) -> list[_Start] | None:
    """The starts of the followed sources; None if the pipeline has not resolved them yet."""
    text = folder.text("helios/start.json")
    if text is None:
        return None
    try:
        return [_start(entry) for entry in json.loads(text)]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, f"helios/start.json: {error!r}") from error


def _start(entry: Mapping[str, Any]) -> _Start:
    _, position = position_of(entry["place"]) or (None, None)
    return _Start(entry.get("uuid"), position)


def _foreign(folder: Folder, wanted: _FollowedTable) -> Reader:
    """Returns the reader for a stream of another program.

    The offsets of the stream do not name the table. A snapshot id in them identifies it.
    """
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else []
    positions = [pair for pair in map(position_of, ends) if pair is not None]
    snapshots = [position.snapshot for _, position in positions if position.snapshot in wanted.snapshots]
    if len(snapshots) != 1:
        count_text = "no snapshot" if not snapshots else "several snapshots"
        why = f"its last committed batch names {count_text} of {wanted.name}"
        raise _unreadable(folder, why, "leave it out, or give the checkpoint of a stream that reads this table once.")
    return Reader(folder.location, folder.location, snapshots[0])


def _unreadable(
    folder: Folder, why: str, fix: str = "restore it from a backup, or delete the folder when its pipeline is gone."
) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {folder.location} of a reader cannot be read: {why}; until then, nothing is expired.", fix=fix
    )
