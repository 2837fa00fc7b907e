"""Partition values and deleted rows beside PyIceberg's own."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote_plus

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType, NestedField
from pyroaring import BitMap64

from helios.native.deletes import MAGIC, read_deleted_positions, read_vector
from helios.native.partitions import PARTITION_TYPES, as_json, folder_name, grouped_by_partition
from helios.native.program import NotNative
from helios.native.work import InputFile, Partition
from helios.plan.typing.schema import from_arrow
from tests.streaming.native_cases import KINDS, table

STORED = {"bigint": "long", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}

BITS = {"int": 2**32, "bigint": 2**64}


def partitioned() -> list[tuple[str, str]]:
    """Each type with each transform that takes it."""
    found = []
    for kind in KINDS:
        for name, takes in PARTITION_TYPES.items():
            if kind.partition("(")[0] in takes:
                found.append((kind, f"{name}[7]" if name in ("bucket", "truncate") else name))
    return found


@pytest.mark.parametrize(("kind", "transform"), partitioned())
def test_partition_values_are_those_of_pyiceberg(kind: str, transform: str) -> None:
    rows = table(Random(3), [kind], 80)
    assert [str(column.kind) for column in from_arrow(rows.schema).columns] == [kind]
    field = Partition("p", "c0", kind, transform)
    stored: IcebergType = _stored(kind)
    own = parse_transform(transform)
    apply = own.transform(stored)
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    seen = 0
    arranged, places = grouped_by_partition(frame, [field])
    for (value,), start, count in places:
        found = {apply(one) for one in _physical(arranged.get_column("c0").slice(start, count), kind)}
        if transform.startswith("truncate") and kind in BITS:
            assert {None if one is None else (one - value) % BITS[kind] for one in found} <= {None, 0}  # Java wraps
        else:
            assert found == {value}
        shown = own.to_human_string(own.result_type(stored), value)
        name = folder_name(value, field)
        assert pl.Series([name]).str.starts_with("p=").all()
        if value is not None and kind != "binary":
            assert name == "p=" + quote_plus(shown)
        assert as_json(value, field) is None or isinstance(as_json(value, field), (bool, int, str))
        seen += count
    assert seen == len(rows)


def _stored(kind: str) -> IcebergType:
    name = STORED.get(kind, kind.replace(",", ", "))
    return NestedField.model_validate({"id": 1, "name": "c", "required": False, "type": name}).field_type


def _physical(values: pl.Series, kind: str) -> list[Any]:
    times = kind == "date" or kind.startswith("timestamp")
    return (values.to_physical() if times else values).to_list()


# deleted rows


def puffin(folder: Path, positions: list[int], *, damaged: bool = False) -> tuple[str, int, int]:
    """A deletion vector between other bytes of a file."""
    body = MAGIC + BitMap64(positions).serialize()
    check = zlib.crc32(body) ^ damaged
    blob = len(body).to_bytes(4, "big") + body + check.to_bytes(4, "big")
    path = folder / "a.puffin"
    path.write_bytes(b"PFA1" + blob + b"end")
    return str(path), 4, len(blob)


def test_deletes_of_a_file_are_all_of_its_own(tmp_path: Path) -> None:
    rows = pa.table({"file_path": ["file:/a", "file:/b", "file:/a"], "pos": [7, 1, 3]})
    pq.write_table(rows, tmp_path / "deletes.parquet")
    by_position = (str(tmp_path / "deletes.parquet"), None, 1)
    file = InputFile("/a", 1, 10, "file:/a", (by_position, puffin(tmp_path, [0, 7, 2**33])))
    assert list(read_deleted_positions(file, {})) == [0, 3, 7, 2**33]
    assert list(read_deleted_positions(InputFile("/c", 1, 10, "file:/c", (by_position,)), {})) == []


def test_a_damaged_vector_is_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(NotNative, match="a deletion vector is damaged"):
        read_vector(*puffin(tmp_path, [1], damaged=True), {})
