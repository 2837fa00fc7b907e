"""Hadoop's file systems."""

from __future__ import annotations

from typing import Protocol

from helios.spark.jvm.types.java import JavaArray, JavaObject


class JavaConfiguration(JavaObject, Protocol):
    """An `org.apache.hadoop.conf.Configuration`."""


class JavaPath(JavaObject, Protocol):
    """An `org.apache.hadoop.fs.Path`."""

    def getFileSystem(self, conf: JavaConfiguration) -> JavaFileSystem: ...

    def getName(self) -> str: ...

    def getParent(self) -> JavaPath: ...


class JavaFileStatus(JavaObject, Protocol):
    """An `org.apache.hadoop.fs.FileStatus`."""

    def isFile(self) -> bool: ...

    def getPath(self) -> JavaPath: ...


class JavaInputStream(JavaObject, Protocol):
    """A `java.io.InputStream`."""

    def readNBytes(self, length: int) -> bytes: ...

    def close(self) -> None: ...


class JavaOutputStream(JavaObject, Protocol):
    """A `java.io.OutputStream`."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class JavaFileSystem(JavaObject, Protocol):
    """An `org.apache.hadoop.fs.FileSystem`."""

    def getScheme(self) -> str: ...

    def getRawFileSystem(self) -> JavaFileSystem:
        """The file system without checksums that underlies Hadoop's local file system."""

    def makeQualified(self, path: JavaPath) -> JavaPath: ...

    def exists(self, path: JavaPath) -> bool: ...

    def open(self, path: JavaPath) -> JavaInputStream: ...

    def create(self, path: JavaPath, overwrite: bool) -> JavaOutputStream: ...

    def delete(self, path: JavaPath, recursive: bool) -> bool: ...

    def rename(self, path: JavaPath, to: JavaPath) -> bool: ...

    def mkdirs(self, path: JavaPath) -> bool: ...

    def listStatus(self, path: JavaPath) -> JavaArray[JavaFileStatus]: ...

    def getFileStatus(self, path: JavaPath) -> JavaFileStatus: ...

    def close(self) -> None: ...
