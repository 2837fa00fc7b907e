"""How far a pipeline is behind a folder of files, by its log and a listing; without a JVM."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping

from helios.errors import HeliosError, RunError
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.log import FileLog
from helios.table.file_names import rooted
from helios.table.positions import Lag, Recorded
from helios.table.storage import Folder
from helios.table.view import View


class ReadOnlyLog:
    """The log of a checkpoint, read-only."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        return self._folder.text(name)

    def names(self, folder: str) -> list[str]:
        return self._folder.names(folder)

    def write(self, name: str, text: str) -> None:
        raise RunError(f"{self._folder.location}/{name} is not written here.")

    def delete(self, name: str) -> None:
        raise RunError(f"{self._folder.location}/{name} is not deleted here.")


def folder_lag(path: str, at: FolderPosition, properties: Mapping[str, str]) -> Lag | None:
    """The lag of a folder: its files that are not read yet.

    Args:
        path: The path of the source.
        at: How far it is read.
        properties: PyIceberg's properties of a catalog, which open the storage.

    Returns:
        The files that wait, and the age of the oldest; None where folder or log cannot be read.
    """
    root, _, number = at.log.partition("/helios/files/")
    if not number.isdigit():
        return None
    location = f"file:///{root.removeprefix('file:').lstrip('/')}" if root.startswith("file:") else root
    try:
        known = FileLog(ReadOnlyLog(Folder(location, properties)), root, int(number)).load(at)
        folder, glob = rooted(path)
        listed = Folder(folder, properties).files(glob)
    except (HeliosError, re.error):
        return None
    return waiting_lag([stat for name, stat in listed.items() if stat[0] and known.get(name) != stat])


def waiting_lag(waiting: Collection[tuple[int, int]]) -> Lag:
    """The lag of files that wait.

    Args:
        waiting: Their sizes in bytes, and their modification times in milliseconds.

    Examples:
        >>> waiting_lag([])
        Lag(snapshots=0, seconds=0.0, files=0, bytes=0, records=None)
    """
    oldest = min((modified for _, modified in waiting), default=None)
    age = max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
    return Lag(0, age, files=len(waiting), bytes=sum(size for size, _ in waiting))


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """The files that wait behind the recorded position of a folder."""
    if not isinstance(entry.position, FolderPosition):
        return None
    return folder_lag(entry.source, entry.position, view.places[0].properties if view.places else {})
