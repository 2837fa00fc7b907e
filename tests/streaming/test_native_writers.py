"""Folders of files of pyarrow, pandas, Polars and DuckDB, by the columnar engine and by Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files, where
from helios.errors import HeliosError
from tests.streaming.native_cases import KINDS, Expressions, rows_of, scanned, set_engine, table

CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of a long form of each writer, whose first seed is NATIVE_SEED."""
LEFT = 'native = "require"'
"""In an error: the engine leaves the batch to Spark."""
UNREADABLE = ("Unsupported encoding", "BrotliCodec")
"""In an error: Spark does not know how a page is written or compressed; the engine does."""

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]


# files as each writer makes them, with the options that change what is in them


def by_pyarrow(random: Random, rows: pa.Table, path: Path) -> None:
    if random.random() < 0.3:  # types that only the schema of Arrow in the file knows
        rows = rows.cast(
            pa.schema([(f.name, {pa.string(): pa.large_string()}.get(f.type, f.type)) for f in rows.schema])
        )
    if random.random() < 0.2:
        texts = [i for i, f in enumerate(rows.schema) if f.type == pa.string()]
        for i in texts:
            rows = rows.set_column(i, rows.column_names[i], rows.column(i).dictionary_encode())
    pq.write_table(
        rows,
        path,
        version=random.choice(("1.0", "2.4", "2.6")),
        data_page_version=random.choice(("1.0", "2.0")),
        use_dictionary=random.random() < 0.5,
        compression=random.choice(("none", "snappy", "gzip", "zstd", "lz4")),
        write_statistics=random.random() < 0.7,
        store_schema=random.random() < 0.6,
        write_page_index=random.random() < 0.5,
        row_group_size=random.choice((1, 7, 1000)),
        data_page_size=random.choice((16, 1 << 20)),
    )


def by_pandas(random: Random, rows: pa.Table, path: Path) -> None:
    # Its own types have no null of a number: an int column with one becomes a double.
    frame = rows.to_pandas(types_mapper=pd.ArrowDtype) if random.random() < 0.9 else rows.to_pandas()
    compression = "brotli" if random.random() < 0.1 else random.choice((None, "snappy", "zstd"))
    frame.to_parquet(path, index=random.choice((None, False)), compression=compression)


def by_polars(random: Random, rows: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path,
        compression=random.choice(("uncompressed", "snappy", "zstd", "lz4", "gzip")),
        statistics=random.choice((True, False, "full")),
        row_group_size=random.choice((1, 7, None)),
        data_page_size=random.choice((16, None)),
    )


def by_duckdb(random: Random, rows: pa.Table, path: Path) -> None:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("rows", rows)
        options = [
            f"COMPRESSION {random.choice(('uncompressed', 'snappy', 'zstd', 'gzip', 'lz4'))}",
            f"PARQUET_VERSION {random.choice(('V1', 'V2'))}",
            f"ROW_GROUP_SIZE {random.choice((1, 2048))}",
        ]
        database.execute(f"COPY rows TO '{path}' (FORMAT parquet, {', '.join(options)})")


WRITERS: dict[str, Callable[[Random, pa.Table, Path], None]] = {
    "pyarrow": by_pyarrow,
    "pandas": by_pandas,
    "polars": by_polars,
    "duckdb": by_duckdb,
}


# by both engines


def land(random: Random, writer: str, kinds: list[str], folder: Path) -> None:
    """Writes some files with columns of these types."""
    folder.mkdir()
    for number in range(random.randint(1, 3)):
        rows = table(random, kinds, random.choice((0, 1, 20, 60)))
        WRITERS[writer](random, rows, folder / f"{number}.parquet")


def by_both(world: Any, source: Any, seed: int, said: str) -> bool:
    """Whether the engine has done the rows, which are then Spark's; where Spark fails it fails, too."""
    found: dict[str, Any] = {}
    for setting in ("off", "require"):
        set_engine(world, setting)
        name = f"a.{setting}{seed}"
        try:
            world.run(source >> world.sink(name))
            found[setting] = rows_of(scanned(world, name))
        except HeliosError as error:
            found[setting] = str(error)
    off, native = found["off"], found["require"]
    if isinstance(native, str) and LEFT in native:
        return False
    if isinstance(off, str) and any(words in off for words in UNREADABLE):
        return False
    if isinstance(off, str):
        assert isinstance(native, str), f"Spark fails, the engine does not: {said}: {off}"
        return False
    assert native == off, said
    return True


def case(world: Any, writer: str, seed: int) -> bool:
    """A folder of files that a writer has made, with a drawn condition, by both engines."""
    random = Random(f"{writer} {seed}")
    kinds = [random.choice(KINDS) for _ in range(random.randint(1, 5))] + ["int"]
    condition = Expressions(random, [(f"c{i}", kind) for i, kind in enumerate(kinds)]).of("boolean", 2)
    folder = world.folder / f"{writer}{seed}"
    land(random, writer, kinds, folder)
    declared = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    source = Files.source(str(folder), "parquet", declared) >> where(condition)
    return by_both(world, source, seed, f"{writer} {seed}: {declared} where {condition}")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.cases(landing="pyarrow")
def test_files_of_other_writers_are_read_as_by_spark(world: Any, writer: str) -> None:
    done = [case(world, writer, seed) for seed in range(3)]
    assert any(done)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("writer", WRITERS)
def test_hundreds_of_files_of_other_writers_are_read_as_by_spark(world: Any, writer: str) -> None:
    first = int(os.environ.get("NATIVE_SEED", "100"))
    count = CASES or 40
    done = sum(case(world, writer, seed) for seed in range(first, first + count))
    print(f"{writer}: {done} of {count} by the engine, 0 different")
    assert done >= count // 4
