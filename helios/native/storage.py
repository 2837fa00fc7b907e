"""Files that tasks open: on the local disk, or on an object store through PyIceberg's client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

from helios.native.program import NotNative

CLIENTS = ("adlfs", "aiohttp", "azure", "gcsfs", "google", "requests")
"""The packages whose exceptions are those of a store's client."""


def is_local(path: str) -> bool:
    """True if a path is on the local disk, and not a URI."""
    return path.startswith("/")


def opened(path: str, store: Mapping[str, str]) -> Any:
    """A file to read from any place in it; of a file on a store only the parts that are asked for are fetched.

    Args:
        path: A path of the local disk, or a URI.
        store: PyIceberg's properties of the store.
    """
    import pyarrow as pa

    return pa.OSFile(path, "rb") if is_local(path) else _client(path, store).new_input(path).open()


def created(path: str, store: Mapping[str, str]) -> Any:
    """A new file to write; on a store it is there once it is closed."""
    import pyarrow as pa

    if not is_local(path):
        return _client(path, store).new_output(path).create(overwrite=True)  # its name is new: nobody looks for it
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return pa.OSFile(path, "wb")


def delete(path: str, store: Mapping[str, str]) -> None:
    """Deletes a file that may be there; one of a store only if it lets it be deleted.

    Writers of a store have not always the right to: what they leave is in no table.
    """
    if is_local(path):
        if os.path.exists(path):
            os.unlink(path)
        return
    try:
        _client(path, store).delete(path)
    except Exception as error:
        if not is_outside(error):
            raise


def listed(folder: str, store: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The files in a folder of a store and in folders below: their names, and what deletes each."""
    from pyarrow.fs import FileSelector

    client, uri = _client(folder, store), urlsplit(folder)
    if hasattr(client, "get_fs"):  # it is one of fsspec
        files = client.get_fs(uri.scheme, uri.hostname)
        for path in files.find(folder):
            yield path.rpartition("/")[2], partial(files.rm_file, path)
        return
    files = client.fs_by_scheme(uri.scheme, uri.netloc)
    for entry in files.get_file_info(FileSelector(f"{uri.netloc}{uri.path}", recursive=True, allow_not_found=True)):
        if entry.is_file:
            yield entry.base_name, partial(files.delete_file, entry.path)


def sweep(folder: str, name: str, store: Mapping[str, str]) -> None:
    """Deletes the files in a folder of a store, and in folders below, whose names begin so, as far as it lets it."""
    try:
        for path, delete_it in listed(folder, store):
            if path.startswith(name):
                delete_it()
    except Exception as error:
        if not is_outside(error):
            raise


def is_outside(error: BaseException) -> bool:
    """True if an error comes from a disk or from a store's client, whose errors may be classes of their own."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CLIENTS


def _client(path: str, store: Mapping[str, str]) -> Any:
    return _clients(path.partition(":")[0], tuple(sorted(store.items())))


@lru_cache(maxsize=8)
def _clients(scheme: str, store: tuple[tuple[str, str], ...]) -> Any:
    """Clients are kept with their connections: a worker of Spark does many tasks."""
    from pyiceberg.io import load_file_io

    try:
        return load_file_io(dict(store), f"{scheme}://")
    except ValueError as error:  # what it cannot import it only warns of
        raise NotNative(f"an executor has no client of {scheme} ({error})") from error
