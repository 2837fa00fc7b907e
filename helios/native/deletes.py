"""Reads the positions of a data file's deleted rows from position delete files and deletion vectors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helios.native.program import NotNative
from helios.native.storage import open_file
from helios.native.work import InputFile

if TYPE_CHECKING:
    from pyroaring import BitMap64

MAGIC = bytes.fromhex("d1d33964")
"""The magic bytes of a deletion vector (Iceberg's Puffin specification, `deletion-vector-v1`)."""


def read_deleted_positions(file: InputFile, store: Mapping[str, str]) -> BitMap64:
    """Reads the positions of a data file's deleted rows; raises `NotNative` if a deletion vector is damaged.

    Args:
        store: PyIceberg's properties of the object store.
    """
    from pyroaring import BitMap64

    positions = BitMap64()
    for path, offset, size in file.deletes:
        if offset is None:
            positions |= _read_delete_file(path, file.location, store)
        else:
            positions |= read_vector(path, offset, size, store)
    return positions


def _read_delete_file(path: str, location: str, store: Mapping[str, str]) -> BitMap64:
    """Reads the positions that a position delete file lists for the data file at `location`."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    with open_file(path, store) as file, pq.ParquetFile(file) as parquet:
        rows = parquet.read(["file_path", "pos"])
    matching_rows = rows.filter(pc.equal(rows["file_path"], location))
    return BitMap64(matching_rows["pos"].to_pylist())


def read_vector(path: str, offset: int, size: int, store: Mapping[str, str]) -> BitMap64:
    """Reads the positions in a deletion vector of a Puffin file; raises `NotNative` if the vector is damaged."""
    with open_file(path, store) as file:
        file.seek(offset)
        blob = file.read(size)
    if len(blob) != size:
        raise NotNative("a deletion vector is damaged")
    return parse_vector(blob)


def parse_vector(blob: bytes) -> BitMap64:
    """Parses the bytes of a deletion vector into positions; raises `NotNative` if the vector is damaged."""
    from pyroaring import BitMap64

    length = int.from_bytes(blob[:4], "big")
    body, checksum = blob[4 : 4 + length], blob[4 + length :]
    if body[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(checksum, "big"):
        raise NotNative("a deletion vector is damaged")
    return BitMap64.deserialize(body[4:])


def vector_bytes(positions: BitMap64) -> bytes:
    """The bytes of a deletion vector with these positions."""
    body = MAGIC + positions.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
