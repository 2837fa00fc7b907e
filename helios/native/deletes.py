"""The positions of a data file's deleted rows, as position delete files and deletion vectors have them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

from helios.native.program import NotNative
from helios.native.storage import opened
from helios.native.work import InputFile

MAGIC = bytes.fromhex("d1d33964")
"""What a deletion vector begins with (Iceberg's Puffin specification, `deletion-vector-v1`)."""


def deleted(file: InputFile, store: Mapping[str, str]) -> list[int]:
    """The positions of the rows of a file that are deleted, in order.

    Args:
        file: The file.
        store: PyIceberg's properties of the store that it is on.

    Raises:
        NotNative: A deletion vector is damaged.
    """
    found: set[int] = set()
    for path, offset, size in file.deletes:
        found.update(_positions(path, file.location, store) if offset is None else vector(path, offset, size, store))
    return sorted(found)


def _positions(path: str, location: str, store: Mapping[str, str]) -> list[int]:
    """The positions that a position delete file has for a data file."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with opened(path, store) as file, pq.ParquetFile(file) as parquet:
        rows = parquet.read(["file_path", "pos"])
    named = rows.filter(pc.equal(rows["file_path"], location))
    positions: list[int] = named["pos"].to_pylist()
    return positions


def vector(path: str, offset: int, size: int, store: Mapping[str, str]) -> Iterable[int]:
    """The positions of a deletion vector in a Puffin file.

    Raises:
        NotNative: It is not as its checksum says.
    """
    from pyroaring import BitMap64

    with opened(path, store) as file:
        file.seek(offset)
        blob = file.read(size)
    length = int.from_bytes(blob[:4], "big")
    body, check = blob[4 : 4 + length], blob[4 + length :]
    if len(blob) != size or body[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(check, "big"):
        raise NotNative("a deletion vector is damaged")
    positions: Iterable[int] = BitMap64.deserialize(body[4:])
    return positions
