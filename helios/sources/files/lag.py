"""Computes how far a pipeline is behind a folder of files, without a JVM: compares a listing with the log."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping

from helios.errors import HeliosError, RunError
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.log import FileLog
from helios.table.file_names import split_glob
from helios.table.positions import Lag, Recorded
from helios.table.storage import Folder
from helios.table.view import View


class ReadOnlyLog:
    """A read-only `Store` for the log in a checkpoint."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        return self._folder.text(name)

    def names(self, folder: str) -> list[str]:
        return self._folder.names(folder)

    def write(self, name: str, text: str) -> None:
        raise RunError(f"{self._folder.location}/{name} is only read here, and not written.")

    def delete(self, name: str) -> None:
        raise RunError(f"{self._folder.location}/{name} is only read here, and not deleted.")


def folder_lag(path: str, at: FolderPosition, properties: Mapping[str, str]) -> Lag | None:
    """The lag of a folder: the files that have not been read yet.

    Args:
        properties: PyIceberg's catalog properties, with which the storage of the folder is opened.

    Returns:
        The waiting files and the age of the oldest; None if the folder or the log cannot be read.
    """
    root, _, number = at.log.partition("/helios/files/")
    if not number.isdigit():
        return None
    location = f"file:///{root.removeprefix('file:').lstrip('/')}" if root.startswith("file:") else root
    try:
        known = FileLog(ReadOnlyLog(Folder(location, properties)), root, int(number)).load(at)
        folder, glob = split_glob(path)
        listed = Folder(folder, properties).files(glob)
    except (HeliosError, re.error):
        return None
    unread = (stat for path, stat in listed.items() if known.get(path) != stat)
    return waiting_lag([(size, modified) for size, modified in unread if size])  # an empty file waits for content


def waiting_lag(waiting: Collection[tuple[int, int]]) -> Lag:
    """The lag of waiting files.

    Args:
        waiting: Size in bytes and modification time in milliseconds of each file.

    Examples:
        >>> waiting_lag([])
        Lag(snapshots=0, seconds=0.0, files=0, bytes=0, records=None)
    """
    oldest = min((modified for _, modified in waiting), default=None)
    age = max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
    return Lag(0, age, files=len(waiting), bytes=sum(size for size, _ in waiting))


def lag(pipeline: str, entry: Recorded, view: View, notes: list[str]) -> Lag | None:
    """The lag of a pipeline behind a folder, from its recorded position."""
    if not isinstance(entry.position, FolderPosition):
        return None
    return folder_lag(entry.source, entry.position, view.warehouses[0].properties if view.warehouses else {})
