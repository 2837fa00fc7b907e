"""Opens and deletes the files of tasks: on the local disk, or on an object store through PyIceberg's client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

from helios.native.program import NotNative

CLIENTS = ("adlfs", "aiohttp", "azure", "gcsfs", "google", "requests")
"""The packages whose exceptions count as errors of an object store."""


def is_local(path: str) -> bool:
    """True if a path is on the local disk, and not a URI."""
    return path.startswith("/")


def open_file(path: str, store: Mapping[str, str]) -> Any:
    """Opens a file for reads at any offset. From a store, only the requested parts are fetched.

    Args:
        path: A path of the local disk, or a URI.
        store: PyIceberg's properties of the store.
    """
    import pyarrow as pa

    return pa.OSFile(path, "rb") if is_local(path) else _client(path, store).new_input(path).open()


def create_file(path: str, store: Mapping[str, str]) -> Any:
    """Creates a file, and opens it for writing. On a store, the file appears when it is closed."""
    import pyarrow as pa

    if not is_local(path):
        return _client(path, store).new_output(path).create(overwrite=True)  # no existence check: the name is new
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return pa.OSFile(path, "wb")


def delete(path: str, store: Mapping[str, str]) -> None:
    """Deletes a file of no table, if the file exists. Ignores errors of a store: not every writer may delete."""
    if is_local(path):
        if os.path.exists(path):
            os.unlink(path)
        return
    try:
        _client(path, store).delete(path)
    except Exception as error:
        if not is_storage_error(error):
            raise


def list_files(folder: str, store: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The files below a folder of a store: the name of each file, and a function that deletes the file."""
    from pyarrow.fs import FileSelector

    client, uri = _client(folder, store), urlsplit(folder)
    if hasattr(client, "get_fs"):  # a client of fsspec
        files = client.get_fs(uri.scheme, uri.hostname)
        for path in files.find(folder):
            yield path.rpartition("/")[2], partial(files.rm_file, path)
        return
    files = client.fs_by_scheme(uri.scheme, uri.netloc)
    for entry in files.get_file_info(FileSelector(f"{uri.netloc}{uri.path}", recursive=True, allow_not_found=True)):
        if entry.is_file:
            yield entry.base_name, partial(files.delete_file, entry.path)


def delete_by_prefix(folder: str, prefix: str, store: Mapping[str, str]) -> None:
    """Deletes the files whose names begin with `prefix`, below a folder of a store. Ignores errors of the store."""
    try:
        for file_name, delete_file in list_files(folder, store):
            if file_name.startswith(prefix):
                delete_file()
    except Exception as error:
        if not is_storage_error(error):
            raise


def is_storage_error(error: BaseException) -> bool:
    """True for errors of a disk or of a store's client. Clients may have their own exception classes."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CLIENTS


def _client(path: str, store: Mapping[str, str]) -> Any:
    return _client_of(path.partition(":")[0], tuple(sorted(store.items())))


@lru_cache(maxsize=8)
def _client_of(scheme: str, store: tuple[tuple[str, str], ...]) -> Any:
    """The client of a store. The cache keeps its connections for later tasks of the same Python worker."""
    from pyiceberg.io import load_file_io

    try:
        return load_file_io(dict(store), f"{scheme}://")
    except ValueError as error:  # PyIceberg only warns of the import that failed
        raise NotNative(f"an executor has no client for {scheme} ({error})") from error
