"""Small text files of a checkpoint, each replaced as a whole: through Python on a local disk, else through Hadoop."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from typing_extensions import override

from helios.errors import CheckpointError
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import java_class
from helios.spark.jvm.names import names_of
from helios.spark.jvm.types.hadoop import JavaFileSystem, JavaPath
from helios.spark.jvm.types.spark import JavaSparkSession

LOCAL = re.compile(r"file:(?=/(?!/)|///)")
"""The beginning of a local file URI without a host; a URI with a host is left to Hadoop."""
REPLACED_ON_CLOSE = ("s3a", "gs")
"""The schemes of object stores. There, closing a file replaces the former object at once, and a rename is a copy."""

RESTORE = "restore it from a backup, or start a new checkpoint with `helios run --new-checkpoint`."

LOCK_SECONDS = 1.0
"""The longest wait for the lock: a suspended process may hold it forever."""


class SmallFiles(Protocol):
    """Small text files under a folder.

    Attributes:
        root: The folder, as a URI.
        replaces_at_once: Whether a reader finds a file at any moment while it is replaced. On HDFS and ADLS, the file
            may be missing for a moment.
    """

    root: str
    replaces_at_once: bool = True

    def read_json(self, name: str, fix: str = RESTORE) -> Any:
        """The content of a JSON file; None when there is no such file. Raises a `CheckpointError` if it is damaged."""
        text = self.read(name)
        try:
            return json.loads(text) if text is not None else None
        except ValueError as error:
            raise CheckpointError(f"{self.root}/{name} is damaged ({error}).", fix=fix) from error

    def read(self, name: str) -> str | None:
        """The file's text; None when there is no such file."""
        ...

    def write(self, name: str, text: str) -> None:
        """Replaces a file so that no reader sees it half written."""
        ...

    def delete(self, name: str) -> None:
        """Deletes a file or a folder, with the checksum that Spark may have left beside it."""
        ...

    def rename(self, name: str, to: str) -> None:
        """Renames a file or a folder; nothing may be at the new name."""
        ...

    def move(self, to: SmallFiles) -> None:
        """Renames the root folder to another one, which must be missing or empty."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder; an empty list when the folder is missing."""
        ...

    def locked(self) -> AbstractContextManager[bool]:
        """Keeps other processes out of the block; yields False if the file system has no locks or the lock is held."""
        ...


def small_files(spark: SparkSession, location: str) -> SmallFiles:
    """The files under a Hadoop path. A path without a scheme is in Hadoop's default file system."""
    if _is_local(location):
        return LocalFiles(location)
    files = HadoopFiles(spark, location)
    return LocalFiles(files.root) if _is_local(files.root) else files


def _is_local(location: str) -> bool:
    return os.name == "posix" and LOCAL.match(location) is not None


def checksum(name: str) -> str:
    """The file in which Hadoop's local file system stores the checksum of a file."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/.{base}.crc" if folder else f".{base}.crc"


def move_error(files: SmallFiles, to: SmallFiles) -> CheckpointError:
    return CheckpointError(f"the checkpoint {files.root} cannot be moved to {to.root}.", fix="move it by hand.")


class LocalFiles(SmallFiles):
    """Small text files on a local disk. They bypass Hadoop, which would start a process per file to set permissions.

    Args:
        root: The folder, as a URI without escapes, as in a Hadoop path.
    """

    def __init__(self, root: str) -> None:
        # Removes ".." from the text, without following symbolic links. Spark writes through Hadoop's Path, which does
        # the same.
        self._folder = Path(os.path.normpath("/" + root.removeprefix("file:").lstrip("/")))
        self.root = f"file:{self._folder}"

    @override
    def read(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_bytes().decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    @override
    def write(self, name: str, text: str) -> None:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            draft.write_bytes(text.encode())
            # A checksum that Spark wrote does not match the new text.
            (self._folder / checksum(name)).unlink(missing_ok=True)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    @override
    def delete(self, name: str) -> None:
        path = self._folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        (self._folder / checksum(name)).unlink(missing_ok=True)

    @override
    def rename(self, name: str, to: str) -> None:
        (self._folder / name).rename(self._folder / to)

    @override
    def move(self, to: SmallFiles) -> None:
        if not isinstance(to, LocalFiles):
            raise move_error(self, to)
        target = to._folder
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rmdir()
        shutil.move(self._folder, target)

    @override
    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._folder / folder)
        except FileNotFoundError:
            return []

    @override
    @contextmanager
    def locked(self) -> Generator[bool, None, None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            yield _lock(folder)
        finally:
            os.close(folder)  # this releases the lock


def _lock(folder: int) -> bool:
    """Locks an open folder; False if its file system has no locks, or another process holds the lock too long."""
    import fcntl  # Windows has no such module

    limit = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                return False
            time.sleep(0.005)
        except OSError:  # NFS cannot lock folders
            return False
        else:
            return True


class HadoopFiles(SmallFiles):
    """Small text files on any file system of Hadoop.

    Args:
        spark: The session, whose conf has the file system's credentials.
        root: The folder that all names are relative to.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm = classes()
        base = self._path(root)
        session: JavaSparkSession = spark._jsparkSession
        system = base.getFileSystem(session.sessionState().newHadoopConf())
        # With checksums a local write is two renames, and a kill between them makes the file unreadable.
        self._fs: JavaFileSystem = system.getRawFileSystem() if system.getScheme() == "file" else system
        self._replaces_on_close = system.getScheme() in REPLACED_ON_CLOSE
        self.replaces_at_once = self._replaces_on_close or system.getScheme() == "file"
        self.root = str(self._fs.makeQualified(base).toString())

    def _path(self, location: str) -> JavaPath:
        path: JavaPath = self._jvm.org.apache.hadoop.fs.Path(location)
        return path

    def _path_of(self, name: str) -> JavaPath:
        return self._path(f"{self.root}/{name}")

    @override
    def read(self, name: str) -> str | None:
        path = self._path_of(name)
        if not self._fs.exists(path):  # an exception through py4j takes ten times as long as this call
            return None
        try:
            stream = self._fs.open(path)
        except Py4JJavaError as error:
            if java_class(error) == "FileNotFoundException":
                return None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    @override
    def write(self, name: str, text: str) -> None:
        target = self._path_of(name)
        if self._replaces_on_close:
            stream = self._fs.create(target, True)
            stream.write(text.encode())
            stream.close()
            return
        new = f"{name}.{uuid.uuid4().hex[:8]}.tmp"
        draft = self._path_of(new)
        stream = self._fs.create(draft, True)
        stream.write(text.encode())
        stream.close()
        self._fs.delete(self._path_of(checksum(name)), False)  # a checksum that Spark wrote does not match the new text
        # HDFS and ADLS do not rename onto a file. There, a reader finds no file between the next two calls
        # (`replaces_at_once`).
        if not self._fs.rename(draft, target):
            self._fs.delete(target, False)
            self.rename(new, name)

    @override
    def delete(self, name: str) -> None:
        self._fs.delete(self._path_of(name), True)
        self._fs.delete(self._path_of(checksum(name)), False)

    @override
    def rename(self, name: str, to: str) -> None:
        self._rename(self._path_of(name), self._path_of(to))

    def _rename(self, path: JavaPath, to: JavaPath) -> None:
        if not self._fs.rename(path, to):
            raise CheckpointError(f"{path} could not be renamed to {to}.")

    @override
    def move(self, to: SmallFiles) -> None:
        target = self._path(to.root)
        self._fs.mkdirs(target.getParent())
        self._fs.delete(target, False)
        if not self._fs.rename(self._path(self.root), target):
            raise move_error(self, to)

    @override
    def names(self, folder: str) -> list[str]:
        path = self._path_of(folder)
        return names_of(self._fs.listStatus(path)) if self._fs.exists(path) else []

    @override
    @contextmanager
    def locked(self) -> Generator[bool, None, None]:
        yield False
