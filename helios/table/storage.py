"""Reads folders on any storage that PyIceberg can open, without a JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helios.errors import RunError
from helios.table.file_names import glob_pattern, is_data, is_hidden

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def _storage_exceptions() -> tuple[type[Exception], ...]:
    """The exceptions of file systems and of missing packages; Azure's client has exceptions of its own."""
    try:
        from azure.core.exceptions import AzureError
    except ImportError:
        return OSError, ValueError, ImportError
    return OSError, ValueError, ImportError, AzureError


class Folder:
    """A folder on any storage that PyIceberg can open.

    Args:
        location: A URI or a path.
        properties: PyIceberg's properties, which open the storage.
        owner: The part of the configuration that names the folder, such as "catalog gold"; for messages.
    """

    def __init__(self, location: str, properties: Mapping[str, str], owner: str = "") -> None:
        local = "://" not in location or location.startswith("file:")
        path = location.removeprefix("file://").removeprefix("file:")
        plain = os.path.abspath(path) if local else location.rstrip("/")
        self.location = f"file://{plain}" if local else plain
        self._local = plain if local else None
        self._properties = properties
        self._owner = owner

    def folders(self) -> list[str]:
        """The names of the subfolders; empty if this folder does not exist."""
        return sorted(name for name, is_folder in self._list(self._path) if is_folder)

    def batches(self, log: str) -> list[int]:
        """The batch ids of Spark's `offsets` or `commits` log, ascending."""
        return sorted(int(name) for name, _ in self._list(f"{self._path}/{log}") if name.isdigit())

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a subfolder; empty if the subfolder does not exist."""
        return [name for name, _ in self._list(f"{self._path}/{folder}")]

    def files(self, glob: str = "") -> dict[str, tuple[int, int]]:
        """Returns the size and the modification time (in milliseconds) of all files below the folder, by full path.

        Hidden files and those that are still being written are left out, as are files in hidden folders.

        Args:
            glob: Only files that match the glob, or are below a matching folder (which may be hidden), are returned.
        """
        from pyarrow.fs import FileSelector, FileType

        base = f"file:{self._local}" if self._local is not None else self.location
        sizes: dict[str, tuple[int, int]] = {}
        pattern = glob_pattern(glob) if glob else None
        try:
            for entry in self._system.get_file_info(FileSelector(self._path, recursive=True)):
                relative = entry.path.removeprefix(self._path).strip("/")
                below = _below_match(relative.split("/"), pattern)
                wanted = below is not None and is_data(entry.base_name) and not any(map(is_hidden, below[:-1]))
                if entry.type == FileType.File and wanted:
                    sizes[f"{base}/{relative}"] = entry.size, (entry.mtime_ns or 0) // 1_000_000
        except _storage_exceptions() as error:
            raise self._unreadable(error) from error
        return sizes

    def text(self, name: str) -> str | None:
        """The text of a file; None if the file does not exist."""
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                return str(stream.read().decode())
        except FileNotFoundError:
            return None
        except _storage_exceptions() as error:
            raise self._unreadable(error) from error

    def open_content(self, name: str) -> IO[bytes]:
        """Opens a file for reading. Its content is decompressed if the extension is that of a compressed file.

        Raises:
            RunError: The file is missing, or the storage cannot be read.
        """
        try:
            stream: IO[bytes] = self._system.open_input_stream(f"{self._path}/{name}")
            return stream
        except _storage_exceptions() as error:
            raise self._unreadable(error) from error

    def _list(self, path: str) -> Iterator[tuple[str, bool]]:
        from pyarrow.fs import FileSelector, FileType

        try:
            for entry in self._system.get_file_info(FileSelector(path, allow_not_found=True)):
                yield entry.base_name, entry.type == FileType.Directory
        except _storage_exceptions() as error:
            raise self._unreadable(error) from error

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
            known = scheme in SCHEMA_TO_FILE_IO  # PyIceberg would warn about schemes that only pyarrow knows
            files: Any = load_file_io(properties, self.location) if known else PyArrowFileIO(properties)
            if isinstance(files, PyArrowFileIO):
                return files.fs_by_scheme(scheme, netloc), path
            system = files.get_fs(scheme, urlsplit(self.location).hostname)
            system.invalidate_cache()  # adlfs caches listings
            return PyFileSystem(FSSpecHandler(system)), system._strip_protocol(self.location)
        except _storage_exceptions() as error:
            raise self._unreadable(error) from error

    @property
    def _system(self) -> FileSystem:
        return self._opened[0]

    @property
    def _path(self) -> str:
        return self._opened[1]

    def _unreadable(self, error: Exception) -> RunError:
        owner = f" of {self._owner}" if self._owner else ""
        remedy = "check that the storage can be reached from here"
        if isinstance(error, ImportError):
            remedy = "install the missing package"
        otherwise = f", or remove {self._owner} from the configuration" if self._owner else ""
        return RunError(
            f"{self.location}{owner} cannot be read: {' '.join(str(error).split())}.",
            fix=f"{remedy}{otherwise}.",
        )


def _below_match(parts: Sequence[str], pattern: re.Pattern[str] | None) -> Sequence[str] | None:
    """The part of a path below the first folder that a glob matches; None if the glob matches no part of the path."""
    if pattern is None:
        return parts
    ends = (i for i in range(1, len(parts) + 1) if pattern.fullmatch("/".join(parts[:i])))
    end = next(ends, None)
    return parts[end:] if end is not None else None
