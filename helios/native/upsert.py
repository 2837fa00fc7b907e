"""The tasks of an upsert: first `reduce`, then `match`, then `save`.

`reduce` writes the newest row of each key to a file beside the target's files. `match` finds the target's rows with
these keys, and writes files of pairs of old and new rows. `save` writes the new data files. The file of the newest
rows and the files of pairs are deleted when the batch has ended.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from helios.native.program import NotNative
from helios.native.work import Column, InputFile, Share, Stores, TaskReport, Work

if TYPE_CHECKING:
    import polars as pl

ROW_ID, ROW_ID_FIELD = "_row_id", 2147483540
CHANGED, CHANGED_FIELD = "_last_updated_sequence_number", 2147483539
"""The columns of row lineage in files of format v3, and their field ids in Iceberg."""
INDEX, POSITION, NEW_ORDER, REPLACED = "__helios_index", "__helios_position", "__helios_order", "__helios_replaced"
"""Columns of pairs: the index of the new row in the batch, the position of the old row in its file, the order of the
new row, and whether the old row is replaced."""


def lineage(metrics: str) -> tuple[Column, ...]:
    """The columns of row lineage in a file. The sequence number of the last change is null until the commit sets it."""
    return (
        Column(ROW_ID, ROW_ID_FIELD, "bigint", False, metrics),
        Column(CHANGED, CHANGED_FIELD, "bigint", False, metrics),
    )


@dataclass(frozen=True)
class Upsert:
    """The input that all tasks of an upsert have in common.

    Attributes:
        work: What the tasks read: the rows of the source, or the keys, orders and row ids of the target.
        order: The column that orders the rows of a key; None if each key may occur only once.
        rows_path: The path of the file of the newest rows.
    """

    work: Work
    keys: tuple[str, ...]
    order: str | None
    rows_path: str

    def to_json(self) -> str:
        return json.dumps({"work": self.work.to_json(), "keys": self.keys, "order": self.order, "rows": self.rows_path})

    @classmethod
    def parse(cls, text: str) -> Upsert:
        fields = json.loads(text)
        return cls(Work.parse(fields["work"]), tuple(fields["keys"]), fields["order"], fields["rows"])


def reduce(upsert_json: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes the newest row of each key of a batch.

    Args:
        share: All files of the batch, the files of later rows last.
        name: A name that no other attempt has.
        stores: The properties of the source's store and of the target's, which is the local disk.

    Returns:
        `rows`, the number of written rows; `bounds`, the bounds of their keys; and `dropped`, the number of rows that
        expectations dropped.
    """
    import polars as pl

    from helios.native.engine import polars_type
    from helios.native.newest import FILE, ROW, bounds, newest
    from helios.native.reader import Dropped, frames

    upsert, dropped = Upsert.parse(upsert_json), Dropped()
    source_store, _ = stores
    columns = upsert.work.program.columns
    empty = pl.DataFrame(schema={**{name: polars_type(kind) for name, kind in columns}, ROW: pl.UInt32})
    parts = [empty.with_columns(pl.lit(0, pl.Int32).alias(FILE))]
    for file_index, file in enumerate(share):
        for frame in frames(InputFile(*file), upsert.work, source_store, numbered=True, dropped=dropped):
            parts.append(frame.with_columns(pl.lit(file_index, pl.Int32).alias(FILE)))
    rows = newest(pl.concat(parts), upsert.keys, upsert.order).drop(FILE, ROW)
    os.makedirs(os.path.dirname(upsert.rows_path), exist_ok=True)
    path = f"{os.path.splitext(upsert.rows_path)[0]}-{name}.rows"  # a task may still read the file of another attempt
    rows.write_ipc(path, compression="uncompressed")
    os.replace(path, upsert.rows_path)
    return {"rows": len(rows), "bounds": bounds(rows, upsert.keys, columns), "dropped": dropped.rows}


@dataclass(frozen=True)
class Vector:
    """The deletion vector of a data file after the upsert, which includes earlier deletes; `blob` is in base64."""

    location: str
    count: int
    blob: str


def match(upsert_json: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Finds the target's rows whose keys are in the batch.

    Args:
        share: Data files of the target, each with the id of its first row, or None before format v3.
        name: A name that no other attempt at a share has.
        stores: As for `reduce`.

    Returns:
        `vectors`, the deletion vectors of files with replaced rows; and `pairs`, the path of a file of pairs; None for
        no pairs. A pair has the index of the new row, the id of the old row, and whether the old row is replaced.
    """
    import polars as pl

    upsert = Upsert.parse(upsert_json)
    batch = pl.read_ipc(upsert.rows_path, columns=list(dict.fromkeys((*upsert.keys, *_order(upsert)))))
    batch = batch.with_row_index(INDEX)
    if upsert.order is not None:
        batch = batch.with_columns(pl.col(upsert.order).alias(NEW_ORDER))
    batch = batch.select(*upsert.keys, INDEX, *([NEW_ORDER] if upsert.order is not None else []))
    vectors, pairs = [], []
    for file, first_row_id in share:
        vector, matches = _match_file(InputFile(*file), first_row_id, batch, upsert)
        if len(matches):
            pairs.append(matches)
        if vector is not None:
            vectors.append(vector)
    path = f"{os.path.splitext(upsert.rows_path)[0]}-{name}.pairs"
    if pairs:
        pl.concat(pairs).write_ipc(path, compression="uncompressed")
    return {"vectors": [asdict(vector) for vector in vectors], "pairs": path if pairs else None}


def _order(upsert: Upsert) -> tuple[str, ...]:
    return (upsert.order,) if upsert.order is not None else ()


def _match_file(
    file: InputFile, first_row_id: int | None, batch: pl.DataFrame, upsert: Upsert
) -> tuple[Vector | None, pl.DataFrame]:
    """Finds the pairs of a data file, and the file's new deletion vector; None if no row of the file is replaced."""
    import polars as pl
    from pyroaring import BitMap64

    from helios.native.deletes import read_deleted_positions, vector_bytes

    deleted_positions = read_deleted_positions(file, {})
    matches = pl.concat([frame.join(batch, on=list(upsert.keys)) for frame in _read_keys(file, upsert.work)])
    deleted_matches = deleted_positions & BitMap64(matches.get_column(POSITION).to_list())
    matches = matches.filter(~pl.col(POSITION).is_in(list(deleted_matches))) if deleted_matches else matches
    newer = pl.lit(True)
    if upsert.order is not None:
        # As in the MERGE: a new row without an order replaces only an old row without an order.
        newer = pl.col(upsert.order).is_null() | (pl.col(NEW_ORDER) >= pl.col(upsert.order)).fill_null(False)
    row_id = pl.lit(None, pl.Int64)
    if first_row_id is not None:
        row_id = pl.coalesce(pl.col(ROW_ID), pl.col(POSITION).cast(pl.Int64) + first_row_id)
    pairs = matches.select(INDEX, row_id.alias(ROW_ID), newer.alias(REPLACED), POSITION)
    replaced = BitMap64(pairs.filter(REPLACED).get_column(POSITION).to_list())
    if not replaced:
        return None, pairs.drop(POSITION)
    replaced |= deleted_positions
    blob = base64.b64encode(vector_bytes(replaced)).decode()
    return Vector(file.location, len(replaced), blob), pairs.drop(POSITION)


def _read_keys(file: InputFile, work: Work) -> Iterator[pl.DataFrame]:
    """Reads the keys, orders, row ids and positions of the rows of a data file, some rows at a time."""
    from helios.native.reader import collected, scan

    rows, columns, count = scan(file, work, POSITION)
    return collected(rows.select(*(column.expression() for column in columns), POSITION), count, work)


def save(upsert_json: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes the batch's newest rows into files of the target, without rows that are older than the target's row.

    Args:
        share: Ranges of the newest rows: the index of the first row, the number of rows, and all files of pairs.
        name: A name that no other attempt at a share has.
        stores: As for `reduce`.

    Returns:
        `files`, the Iceberg metadata of the written files.
    """
    import polars as pl

    from helios.native.writer import TableWriter

    upsert = Upsert.parse(upsert_json)
    _, target_store = stores
    writer = TableWriter(upsert.work.target, f"{upsert.work.name}-{name}", target_store)
    try:
        for start, count, paths in share:
            rows = pl.read_ipc(upsert.rows_path).with_row_index(INDEX).slice(start, count)
            writer.write(_rows_to_add(rows, [pl.read_ipc(path) for path in paths]))
        return {"files": writer.close()}
    except BaseException:
        writer.abort()
        raise


def _rows_to_add(rows: pl.DataFrame, pairs: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows to add to the table, each with the id of the replaced row."""
    import polars as pl

    changed = pl.lit(None, pl.Int64).alias(CHANGED)
    if not pairs:
        return rows.with_columns(pl.lit(None, pl.Int64).alias(ROW_ID), changed)
    all_pairs = pl.concat(pairs)
    if all_pairs.get_column(INDEX).is_duplicated().any():
        raise NotNative("the table has two rows of one key")
    paired = rows.join(all_pairs, on=INDEX, how="left", maintain_order="left")
    return paired.filter(pl.col(REPLACED).is_null() | pl.col(REPLACED)).with_columns(changed)
