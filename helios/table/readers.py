"""Pipelines that follow a table and their positions, read from checkpoints without a JVM.

A reader's next batch begins at the snapshot where its last committed batch ended. The files are those that Spark and
Helios (`helios.spark.checkpoint.files`) write:

<checkpoint>/
  helios/identity.json   the pipeline, how it reads, and the names of its followed sources in order
  helios/start.json      where those sources are first read from
  commits/N              the last committed batch is the greatest N
  offsets/N              line by line, in the order of the sources, where batch N ended
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helios.errors import CheckpointError, RunError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from helios.catalog.spec import Catalog

CHECKPOINTS = "_helios/checkpoints"
"""Where pipelines keep their checkpoints by default, beside the tables of a warehouse."""

NO_SNAPSHOT = -1
"""The snapshot id of a position in a table without snapshots."""

VERSION = 1
"""The newest version of `identity.json` that is understood here."""


@dataclass(frozen=True)
class Reader:
    """A pipeline that follows a table.

    Attributes:
        pipeline: Its name; the location of its checkpoint if it has none.
        location: Its checkpoint.
        snapshot: The snapshot up to which it has read, or where it begins; None if it has everything still to read.
    """

    pipeline: str
    location: str
    snapshot: int | None

    @property
    def name(self) -> str:
        """The reader in a message."""
        return self.pipeline if self.pipeline == self.location else f"{self.pipeline} ({self.location})"

    @property
    def place(self) -> str:
        """Its position in a message."""
        return f"is at snapshot {self.snapshot}" if self.snapshot is not None else "has read nothing yet"


@dataclass(frozen=True)
class Warehouse:
    """A warehouse that may hold checkpoints.

    Attributes:
        catalog: The name of its catalog.
        uri: The warehouse, a URI or an absolute path.
        properties: PyIceberg's properties of the catalog, which open its storage.
    """

    catalog: str
    uri: str
    properties: Mapping[str, str]


def warehouses(catalogs: Iterable[Catalog]) -> list[Warehouse]:
    """The warehouses of catalogs; those known only to a server are left out, since they hold no checkpoints."""
    from helios.catalog.conf import pyiceberg_properties, warehouse

    found = [(catalog, warehouse(catalog) or "") for catalog in catalogs]
    return [
        Warehouse(catalog.name, uri, pyiceberg_properties(catalog))
        for catalog, uri in found
        if "://" in uri or uri.startswith("/")  # on some servers a warehouse is only a name
    ]


def readers_of(
    table: str, snapshots: Collection[int], places: Iterable[Warehouse], given: Sequence[str] = ()
) -> list[Reader]:
    """Every known reader of a table.

    Args:
        table: The table's full name, catalog first.
        snapshots: The ids of its retained snapshots; they identify a reader whose catalog has another name.
        places: Where to look for checkpoints.
        given: Locations of further checkpoints, which must be readers of this table.

    Raises:
        CheckpointError: A checkpoint cannot be read, or one that was given is not of a reader of this table.
        RunError: A warehouse or a checkpoint cannot be reached.
    """
    places = list(places)
    found: dict[str, list[Reader]] = {}
    for place in places:
        base = f"{place.uri.rstrip('/')}/{CHECKPOINTS}"
        for name in _Folder(base, place.properties, f"catalog {place.catalog}").folders():
            folder = _Folder(f"{base}/{name}", place.properties)
            found.setdefault(folder.location, _readers(folder, table, snapshots))
    for location in given:
        # The storage of a given checkpoint is opened as that of the warehouse it lies in, else as the first one's.
        around = next((p for p in places if location.startswith(p.uri)), places[0] if places else None)
        folder = _Folder(location, around.properties if around else {})
        found[folder.location] = _given(folder, table, snapshots)
    return [reader for readers in found.values() for reader in readers]


def has_begun(location: str, properties: Mapping[str, str]) -> bool:
    """Whether a checkpoint has recorded where its sources start; False where it cannot be read."""
    try:
        return _Folder(location, properties).text("helios/start.json") is not None
    except RunError:
        return False


def stands(location: str, properties: Mapping[str, str], index: int) -> Mapping[str, Any] | None:
    """The position of a followed source in a checkpoint, or its start; None if the checkpoint has neither.

    Args:
        location: The checkpoint.
        properties: PyIceberg's properties, which open the storage.
        index: Which of the followed sources.

    Raises:
        CheckpointError: The checkpoint cannot be read.
        RunError: The storage cannot be reached.
    """
    folder = _Folder(location, properties)
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else []
    if index < len(ends) and ends[index] is not None:
        return ends[index]
    try:
        places = [entry["place"] for entry in json.loads(folder.text("helios/start.json") or "[]")]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, f"helios/start.json: {error!r}") from error
    return places[index] if index < len(places) else None


def needed(reader: Reader, parents: Mapping[int, int | None]) -> frozenset[int]:
    """The snapshots that a reader needs: the one at its position, and all later ones.

    Args:
        reader: The reader.
        parents: The parent of each retained snapshot of the table.

    Returns:
        Ids of retained snapshots; none when the reader's position is no longer in the history.
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


def _given(folder: _Folder, table: str, snapshots: Collection[int]) -> list[Reader]:
    """The readers of a checkpoint that the user named; there must be one."""
    if folder.text("helios/identity.json") is None and folder.batches("offsets"):
        return [_foreign(folder, table, snapshots)]
    identity = _identity(folder)
    if identity is None:
        raise CheckpointError(f"readers: {folder.location} is not a checkpoint.", fix="give the checkpoint's folder.")
    readers = _readers(folder, table, snapshots)
    if not readers:
        sources = ", ".join(identity["sources"])
        raise CheckpointError(
            f"readers: the checkpoint {folder.location} of {identity['pipeline']} does not follow {table}"
            f"{f', but {sources}' if sources else ''}.",
            fix="leave it out, or give the checkpoint of a reader of this table.",
        )
    return readers


def _readers(folder: _Folder, table: str, snapshots: Collection[int]) -> list[Reader]:
    """The readers of a table in one checkpoint: none, or one for each time that it follows the table."""
    identity = _identity(folder)
    if identity is None or identity["path"] == "batch":  # a batch pipeline reads the current state, whatever it is
        return []
    within = table.partition(".")[2]
    readers = []
    for index, source in enumerate(identity["sources"]):
        if source != table and source.partition(".")[2] != within:
            continue
        stood = _stood(folder, index, len(identity["sources"]))
        if source == table or stood in snapshots:
            readers.append(Reader(identity["pipeline"], folder.location, stood))
    return readers


def _identity(folder: _Folder) -> dict[str, Any] | None:
    """The identity of a checkpoint; None for a folder that no pipeline has used yet."""
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
        raise _unreadable(folder, f"it was written by a newer Helios (its version is {version}, ours {VERSION})")
    return known


def _stood(folder: _Folder, index: int, sources: int) -> int | None:
    """The last snapshot of a source that was read, or its start; None when everything is still to be read."""
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else [None] * sources
    starts = _starts(folder, sources)
    if len(ends) != sources:
        raise _unreadable(folder, f"offsets/{committed[-1]} has {len(ends)} sources, and the pipeline {sources}")
    end = ends[index]
    try:
        snapshot = int(end["snapshot_id"]) if end is not None else NO_SNAPSHOT
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(folder, f"offsets/{committed[-1]} has no snapshot: {error!r}") from error
    return snapshot if snapshot != NO_SNAPSHOT else starts[index]


def _offsets(folder: _Folder, batch: int) -> list[dict[str, Any] | None]:
    lines = (folder.text(f"offsets/{batch}") or "").splitlines()
    try:
        if not lines or lines[0] != "v1":
            raise ValueError("not an offset log of version 1")
        return [None if line == "-" else json.loads(line) for line in lines[2:]]
    except ValueError as error:
        raise _unreadable(folder, f"offsets/{batch} is missing or damaged: {error}") from error


def _starts(folder: _Folder, sources: int) -> list[int | None]:
    text = folder.text("helios/start.json")
    if text is None:
        return [None] * sources
    try:
        found = [int(entry["place"]["snapshot_id"]) for entry in json.loads(text)]
        if len(found) != sources:
            raise ValueError(f"{len(found)} places for {sources} sources")
        return [snapshot if snapshot != NO_SNAPSHOT else None for snapshot in found]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, f"helios/start.json: {error!r}") from error


def _foreign(folder: _Folder, table: str, snapshots: Collection[int]) -> Reader:
    """The reader of a Spark stream that is not from Helios: its offsets name no table, but snapshot ids are unique."""
    committed = folder.batches("commits")
    ends = _offsets(folder, committed[-1]) if committed else []
    known = [end["snapshot_id"] for end in ends if isinstance(end, dict) and end.get("snapshot_id") in snapshots]
    if len(known) != 1:
        where = "no snapshot" if not known else "several snapshots"
        raise _unreadable(folder, f"its last committed batch names {where} of {table}")
    return Reader(folder.location, folder.location, int(known[0]))


def _unreadable(folder: _Folder, why: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {folder.location} of a reader cannot be read: {why}; nothing was expired.",
        fix="restore it from a backup, or delete the folder when its pipeline is gone.",
    )


def _failures() -> tuple[type[Exception], ...]:
    """The errors of file systems, also of missing ones; Azure's client has its own."""
    try:
        from azure.core.exceptions import AzureError
    except ImportError:
        return OSError, ValueError, ImportError
    return OSError, ValueError, ImportError, AzureError


class _Folder:
    """A folder on any storage that PyIceberg can open.

    Args:
        location: A URI or a path.
        properties: PyIceberg's properties, which open the storage.
        whose: What the folder belongs to, for messages.
    """

    def __init__(self, location: str, properties: Mapping[str, str], whose: str = "") -> None:
        local = "://" not in location or location.startswith("file:")
        plain = os.path.abspath(location.removeprefix("file://")) if local else location.rstrip("/")
        self.location = f"file://{plain}" if local else plain
        self._local = plain if local else None
        self._properties = properties
        self._whose = whose

    def folders(self) -> list[str]:
        """The names of the folders in it; none when it is missing."""
        return sorted(name for name, is_folder in self._list(self._path) if is_folder)

    def batches(self, log: str) -> list[int]:
        """The batch ids of Spark's `offsets` or `commits` log, ascending."""
        return sorted(int(name) for name, _ in self._list(f"{self._path}/{log}") if name.isdigit())

    def text(self, name: str) -> str | None:
        """The text of a file; None when there is no such file."""
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                return str(stream.read().decode())
        except FileNotFoundError:
            return None
        except _failures() as error:
            raise self._away(error) from error

    def _list(self, path: str) -> Iterator[tuple[str, bool]]:
        from pyarrow.fs import FileSelector, FileType

        try:
            for entry in self._system.get_file_info(FileSelector(path, allow_not_found=True)):
                yield entry.base_name, entry.type == FileType.Directory
        except _failures() as error:
            raise self._away(error) from error

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

        if self._local is not None:
            return LocalFileSystem(), self._local
        from pyiceberg.io import SCHEMA_TO_FILE_IO, load_file_io
        from pyiceberg.io.pyarrow import PyArrowFileIO

        properties = dict(self._properties)
        try:
            scheme, netloc, path = PyArrowFileIO.parse_location(self.location, properties)
            known = scheme in SCHEMA_TO_FILE_IO  # it warns of others, where pyarrow has the last word
            files: Any = load_file_io(properties, self.location) if known else PyArrowFileIO(properties)
            if isinstance(files, PyArrowFileIO):
                return files.fs_by_scheme(scheme, netloc), path
            system = files.get_fs(scheme, urlsplit(self.location).hostname)
            system.invalidate_cache()  # adlfs caches listings
            return PyFileSystem(FSSpecHandler(system)), system._strip_protocol(self.location)
        except _failures() as error:
            raise self._away(error) from error

    @property
    def _system(self) -> FileSystem:
        return self._opened[0]

    @property
    def _path(self) -> str:
        return self._opened[1]

    def _away(self, error: Exception) -> RunError:
        whose = f" of {self._whose}" if self._whose else ""
        return RunError(
            f"{self.location}{whose} cannot be searched for readers: {' '.join(str(error).split())}; nothing was "
            "expired.",
            fix="check that the storage can be reached from here, or remove its catalog from the configuration.",
        )
