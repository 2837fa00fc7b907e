"""The tasks of an upsert: a batch's newest rows, the positions of the rows that they replace, and the new files.

The newest rows go into a file beside the target's own, from which every task reads what it needs; it and the files of
the pairs are deleted when the batch has ended.
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
"""The columns of row lineage in files of format v3, and Iceberg's field ids of them."""
INDEX, POSITION, NEW_ORDER, REPLACED = "__helios_index", "__helios_position", "__helios_order", "__helios_replaced"


def lineage(metrics: str) -> tuple[Column, ...]:
    """The columns of a file that keep the id of a replaced row; the commit gives its last change."""
    return (
        Column(ROW_ID, ROW_ID_FIELD, "bigint", False, metrics),
        Column(CHANGED, CHANGED_FIELD, "bigint", False, metrics),
    )


@dataclass(frozen=True)
class Upsert:
    """The common part of the tasks of an upsert.

    Attributes:
        work: What they read: the source's rows, or the keys, the order and the row ids of the target.
        keys: The key columns.
        order: The column that orders rows; None where each key may occur once.
        rows: The file of the newest rows.
    """

    work: Work
    keys: tuple[str, ...]
    order: str | None
    rows: str

    def to_json(self) -> str:
        """The upsert as JSON."""
        return json.dumps({"work": self.work.to_json(), "keys": self.keys, "order": self.order, "rows": self.rows})

    @classmethod
    def parse(cls, text: str) -> Upsert:
        """The upsert of `to_json`."""
        fields = json.loads(text)
        return cls(Work.parse(fields["work"]), tuple(fields["keys"]), fields["order"], fields["rows"])


def reduce(text: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes the newest rows of a batch.

    Args:
        text: The upsert.
        share: All files of the batch, those of later rows last.
        name: A name of its own for each try.
        stores: The store of the source, and that of the target, which is the local disk.

    Returns:
        How many `rows` there are, the `bounds` of their keys, and how many rows expectations have `dropped`.
    """
    import polars as pl

    from helios.native.engine import polars_type
    from helios.native.newest import FILE, ROW, bounds, newest
    from helios.native.reader import Dropped, frames

    upsert, dropped = Upsert.parse(text), Dropped()
    columns = upsert.work.program.columns
    empty = pl.DataFrame(schema={**{name: polars_type(kind) for name, kind in columns}, ROW: pl.UInt32})
    parts = [empty.with_columns(pl.lit(0, pl.Int32).alias(FILE))]
    for place, file in enumerate(share):
        for frame in frames(InputFile(*file), upsert.work, stores[0], numbered=True, dropped=dropped):
            parts.append(frame.with_columns(pl.lit(place, pl.Int32).alias(FILE)))
    rows = newest(pl.concat(parts), upsert.keys, upsert.order).drop(FILE, ROW)
    os.makedirs(os.path.dirname(upsert.rows), exist_ok=True)
    made = f"{os.path.splitext(upsert.rows)[0]}-{name}.rows"  # of another try it may still be read
    rows.write_ipc(made, compression="uncompressed")
    os.replace(made, upsert.rows)
    return {"rows": len(rows), "bounds": bounds(rows, upsert.keys, columns), "dropped": dropped.rows}


@dataclass(frozen=True)
class Vector:
    """All deleted rows of a data file, earlier deletes included.

    Attributes:
        location: The data file.
        count: The rows.
        blob: A deletion vector of them, as text.
    """

    location: str
    count: int
    blob: str


def match(text: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Finds the rows of a target whose key is in the batch.

    Args:
        text: The upsert.
        share: Data files of the target, each with its first row id, which is None where it has none.
        name: A name of its own for each try of a share.
        stores: The same as of `reduce`.

    Returns:
        The `vectors` of files with rows that are replaced, and as `pairs` a file with each row of the batch that has
        an old one, by its place in the batch.
    """
    import polars as pl

    upsert = Upsert.parse(text)
    batch = pl.read_ipc(upsert.rows, columns=list(dict.fromkeys((*upsert.keys, *_order(upsert)))))
    batch = batch.with_row_index(INDEX)
    if upsert.order is not None:
        batch = batch.with_columns(pl.col(upsert.order).alias(NEW_ORDER))
    batch = batch.select(*upsert.keys, INDEX, *([NEW_ORDER] if upsert.order is not None else []))
    vectors, pairs = [], []
    for file, first in share:
        vector, found = _of_file(InputFile(*file), first, batch, upsert)
        pairs += [found] if len(found) else []
        vectors += [vector] if vector is not None else []
    path = f"{os.path.splitext(upsert.rows)[0]}-{name}.pairs"
    if pairs:
        pl.concat(pairs).write_ipc(path, compression="uncompressed")
    return {"vectors": [asdict(vector) for vector in vectors], "pairs": path if pairs else None}


def _order(upsert: Upsert) -> tuple[str, ...]:
    return (upsert.order,) if upsert.order is not None else ()


def _of_file(
    file: InputFile, first: int | None, batch: pl.DataFrame, upsert: Upsert
) -> tuple[Vector | None, pl.DataFrame]:
    """The vector of a data file, if it has rows that are replaced, and the pairs."""
    import polars as pl
    from pyroaring import BitMap64

    from helios.native.deletes import deleted, written

    gone = deleted(file, {})
    found = pl.concat([frame.join(batch, on=list(upsert.keys)) for frame in _keyed(file, upsert.work)])
    dead = gone & BitMap64(found.get_column(POSITION).to_list())
    found = found.filter(~pl.col(POSITION).is_in(list(dead))) if dead else found
    newer = pl.lit(True)
    if upsert.order is not None:
        # As the MERGE has it: a row without an order replaces one without an order alone.
        newer = pl.col(upsert.order).is_null() | (pl.col(NEW_ORDER) >= pl.col(upsert.order)).fill_null(False)
    number = pl.lit(None, pl.Int64)
    if first is not None:
        number = pl.coalesce(pl.col(ROW_ID), pl.col(POSITION).cast(pl.Int64) + first)
    pairs = found.select(INDEX, number.alias(ROW_ID), newer.alias(REPLACED), POSITION)
    replaced = BitMap64(pairs.filter(REPLACED).get_column(POSITION).to_list())
    if not replaced:
        return None, pairs.drop(POSITION)
    replaced |= gone
    blob = base64.b64encode(written(replaced)).decode()
    return Vector(file.location, len(replaced), blob), pairs.drop(POSITION)


def _keyed(file: InputFile, work: Work) -> Iterator[pl.DataFrame]:
    """The columns of a data file that are compared, with the positions of the rows, some rows at a time."""
    from helios.native.reader import collected, scanned

    rows, columns, count = scanned(file, work, POSITION)
    return collected(rows.select(*(column.expression() for column in columns), POSITION), count, work)


def store(text: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes rows of the batch into files of the target, but for late ones.

    Args:
        text: The upsert.
        share: Where rows begin, how many they are, and the files of all pairs.
        name: A name of its own for each try of a share.
        stores: The same as of `reduce`.

    Returns:
        As `files`, what Iceberg's metadata says of each.
    """
    import polars as pl

    from helios.native.writer import TableWriter

    upsert = Upsert.parse(text)
    writer = TableWriter(upsert.work.target, f"{upsert.work.name}-{name}", stores[1])
    try:
        for start, count, paths in share:
            rows = pl.read_ipc(upsert.rows).with_row_index(INDEX).slice(start, count)
            writer.write(_kept(rows, [pl.read_ipc(path) for path in paths]))
        return {"files": writer.close()}
    except BaseException:
        writer.abort()
        raise


def _kept(rows: pl.DataFrame, pairs: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows that are added to the table, with the ids of the rows that they replace.

    Raises:
        NotNative: The table has a key twice.
    """
    import polars as pl

    changed = pl.lit(None, pl.Int64).alias(CHANGED)
    if not pairs:
        return rows.with_columns(pl.lit(None, pl.Int64).alias(ROW_ID), changed)
    known = pl.concat(pairs)
    if known.get_column(INDEX).is_duplicated().any():
        raise NotNative("the table has two rows of one key")
    paired = rows.join(known, on=INDEX, how="left", maintain_order="left")
    return paired.filter(pl.col(REPLACED).is_null() | pl.col(REPLACED)).with_columns(changed)
