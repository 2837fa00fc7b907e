"""The cost of a name mapping, as `add_files` leaves it: the footers of a table's files are opened before a read.

    python -m perf.mapped [FILES]

A mapped and a plain table of the same small files are copied in turns. Of the mapped one the first copy opens each
footer, and the second knows them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from helios import Catalog, Iceberg
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.spark.iceberg import foreign_files
from helios.spark.run.run import PipelineRun
from helios.spark.session import session

ROUNDS, ROWS = 3, 100


def main(files: int = 500) -> None:
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        measure(Path(made), files)


def measure(folder: Path, files: int) -> None:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("perf")
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "text": [f"text {i}" for i in range(ROWS)]})
    for name in ("mapped", "plain", "warm"):
        catalog.create_table(f"perf.{name}", rows.schema)
    (folder / "in").mkdir()
    numbered = rows.cast(
        pa.schema([f.with_metadata({"PARQUET:field_id": str(i)}) for i, f in enumerate(rows.schema, 1)])
    )
    for number in range(files):
        pq.write_table(numbered, folder / "in" / f"{number}.parquet")
    spark = copied(folder, catalog, "warm", "warmed")[0]
    for name in ("mapped", "plain"):
        source = f"`parquet`.`{folder / 'in'}`"
        spark.sql(f"CALL local.system.add_files(table => 'local.perf.{name}', source_table => '{source}')").collect()
    spark.sql(f"ALTER TABLE local.perf.plain UNSET TBLPROPERTIES ('{foreign_files.NAME_MAPPING}')")
    copied(folder, catalog, "plain", "warmer")
    for number in range(ROUNDS):
        for name in ("mapped", "plain") if number % 2 else ("plain", "mapped"):
            foreign_files._VERIFIED.clear()
            took = [copied(folder, catalog, name, f"{name}_{number}_{copy}")[1] for copy in ("first", "second")]
            print(f"{files} files, {name}: first copy {took[0]:.2f} s, second {took[1]:.2f} s", flush=True)


def copied(folder: Path, catalog: Catalog, name: str, target: str) -> tuple[SparkSession, float]:
    """Copies a table, and says how long that took."""
    config = load(folder)
    source = Iceberg.source(f"perf.{name}", catalog=catalog).incremental(start="earliest")
    pipeline = (source >> Iceberg.sink(f"perf.{target}", catalog=catalog)).named(target)
    plan = require_runnable(*compile_pipelines([pipeline], Context(config=config, catalogs={"local": catalog})))[0]
    spark = session.for_run(config, [plan], None)
    began = time.perf_counter()
    PipelineRun(plan, spark, once=True).start().await_termination()
    return spark, time.perf_counter() - began


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
