"""What an engine alone would take for an upsert of 1% scattered keys: prints seconds, a lower bound.

    python perf/upsert_engine.py --rows 10000000 --rounds 5

8 files of a table, and a batch of 1% of their keys and 0.1% new ones. Polars takes the newest row of each key, finds
the positions of the old rows in every file, and writes the new rows. No deletion vectors are written (the positions are
saved as they are), nothing is committed, late rows and deletes are not looked at, and no file has deleted rows yet: an
engine in Helios's tasks takes longer: `python -m perf run upsert` has it, and the MERGE, beside other contenders.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

FILES = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(given.cores)
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        print(f"median {statistics.median(measured(Path(made), given.rows, given.rounds)):.2f} s")
    return 0


def measured(folder: Path, rows: int, rounds: int) -> list[float]:
    """Makes the files, and returns the seconds of each round."""
    import polars as pl

    each = rows // FILES
    for number in range(FILES):
        ids = pl.int_range(number * each, (number + 1) * each, eager=True).alias("id")
        table(pl.DataFrame([ids]), 0).write_parquet(folder / f"{number}.parquet", compression_level=3)
    seconds = []
    for number in range(1, rounds + 2):
        drawn = pl.int_range(rows, eager=True).alias("id").sample(rows // 100, seed=number)
        new = pl.int_range(rows, rows + rows // 1000, eager=True).alias("id")
        table(pl.DataFrame([pl.concat([drawn, new])]), number).write_parquet(folder / "batch.parquet")
        began = time.monotonic()
        upsert(folder)
        seconds.append(time.monotonic() - began)
        print(f"{'warm-up' if number == 1 else f'round {number - 1}'}: {seconds[-1]:.2f} s", flush=True)
    return seconds[1:]


def table(ids, number: int):  # type: ignore[no-untyped-def]
    """Rows as those of the workload `upsert`."""
    import polars as pl

    mixed = pl.col("id").hash(number)
    return ids.with_columns(
        (pl.col("id") % 50_000).cast(pl.Int32).alias("customer_id"),
        ((mixed % 1_000_000).cast(pl.Int64) / 100).cast(pl.Decimal(12, 2)).alias("amount"),
        (mixed % 3).cast(pl.String).alias("state"),
        pl.lit(1_767_225_600_000_000 + number).cast(pl.Datetime("us", "UTC")).alias("updated_at"),
        pl.concat_str([pl.col("id").hash(number + n).cast(pl.String) for n in range(4)]).alias("note"),
    )


def upsert(folder: Path) -> None:
    """The newest row of each key, the positions of its old row in every file, and the new rows as a file."""
    import polars as pl

    batch = pl.read_parquet(folder / "batch.parquet").sort("updated_at").unique("id", keep="last")
    keys = batch.select("id").lazy()
    for number in range(FILES):
        old = pl.scan_parquet(folder / f"{number}.parquet", row_index_name="at").select("id", "at")
        old.join(keys, on="id", how="semi").select("at").sink_parquet(folder / f"{number}.positions")
    batch.write_parquet(folder / "new.parquet", compression_level=3)


if __name__ == "__main__":
    sys.exit(main())
