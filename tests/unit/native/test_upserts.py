"""The newest rows of a batch, and deletion vectors, without Spark."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyroaring import BitMap64

from helios.native.deletes import read_vector, vector_bytes
from helios.native.newest import FILE, ROW, bounds, newest
from helios.native.program import NotNative

pytestmark = pytest.mark.promise("engine")


def rows(*values: tuple[int | None, int | None, int, int]) -> pl.DataFrame:
    return pl.DataFrame(values, schema={"id": pl.Int64, "n": pl.Int64, FILE: pl.Int32, ROW: pl.UInt32}, orient="row")


def test_the_newest_row_of_a_key_and_of_equal_ones_the_later() -> None:
    batch = rows((1, 5, 0, 0), (1, 7, 0, 1), (2, 3, 0, 2), (2, 3, 1, 0), (2, 3, 0, 3), (3, None, 0, 4), (3, None, 0, 5))
    batch = pl.concat([batch, rows((4, None, 1, 1), (4, -1, 0, 6))])
    found = sorted(newest(batch, ["id"], "n").rows())
    assert found == [(1, 7, 0, 1), (2, 3, 1, 0), (3, None, 0, 5), (4, -1, 0, 6)]
    assert bounds(batch, ["id"], [("id", "bigint")]) == {"id": [1, 4]}


@pytest.mark.parametrize(
    ("batch", "order", "why"),
    [
        (rows((None, 1, 0, 0)), "n", "a row has a null in its key"),
        (rows((1, 1, 0, 0), (1, 2, 0, 1)), None, "two rows of the batch have one key"),
    ],
)
def test_what_spark_must_say(batch: pl.DataFrame, order: str | None, why: str) -> None:
    with pytest.raises(NotNative, match=why):
        newest(batch, ["id"], order)


def test_a_vector_is_read_as_it_was_written(tmp_path: Path) -> None:
    positions = BitMap64([0, 3, 2**16, 2**33 + 1])
    blob = vector_bytes(positions)
    (tmp_path / "a.puffin").write_bytes(b"PFA1" + blob)
    assert read_vector(str(tmp_path / "a.puffin"), 4, len(blob), {}) == positions
