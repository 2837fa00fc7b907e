"""An upsert followed as a stream, beside the same in pandas: prints how many rows differ, which must be 0.

    python perf/upsert_reference.py --keys 1000000 --batches 20 --stores-order

The first commit of the source holds every key. Each later one changes 1% of them, scattered: updates and deletes, new
keys, deleted keys that come back, rows that are older than what is known of their key or as old as that, rows without
an order, and several rows of a key. A running pipeline takes one commit per batch; pandas keeps the newest row of every
key. At the end the two are compared in all columns, as multisets.

The target has the order's column with `--stores-order`, and Helios compares with it; without it the target has none,
and Helios remembers every key's order itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from helios import Catalog, Iceberg
from helios.spark.run.run import PipelineRun

SOURCE = pa.schema(
    [
        ("id", pa.int64()),
        ("seq", pa.int64()),
        ("op", pa.string()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
NO_ORDER = -1
"""How pandas has a `seq` that is null: older than all others."""
KINDS = {"newer": 0.55, "older": 0.25, "as old": 0.15, "without order": 0.05}
NAMES = np.array([None, "", "ä", "it's", "long " * 5], dtype=object)


class Reference:
    """The newest row of every key that was ever seen, deleted ones too, with the key as the index."""

    def __init__(self) -> None:
        self.rows = pd.DataFrame({"seq": [], "op": []})

    def take(self, batch: pd.DataFrame) -> None:
        newest = batch.sort_values("seq", kind="stable").drop_duplicates("id", keep="last").set_index("id")
        seen = self.rows["seq"].reindex(newest.index)
        winning = newest[seen.isna() | (newest["seq"] >= seen)]  # of equal ones the later batch's
        kept = self.rows[~self.rows.index.isin(winning.index)]
        self.rows = pd.concat([kept, winning]) if len(kept) else winning

    def table(self, columns: list[str]) -> pa.Table:
        return arrow(self.rows[self.rows["op"] != "d"].reset_index()).select(columns)


class Changes:
    """Makes batches over what is known so far."""

    def __init__(self, keys: int, share: float, seed: int, known: Reference) -> None:
        self.keys = keys
        self.share = share
        self.known = known
        self.rng = np.random.default_rng(seed)

    def first(self) -> pd.DataFrame:
        return self._rows(np.arange(self.keys), np.full(self.keys, 1_000), deletes=0.0)

    def batch(self) -> pd.DataFrame:
        """Rows of a share of the keys, of which a tenth come twice."""
        size, rows = round(self.keys * self.share), self.known.rows
        gone = rows.index[rows["op"] == "d"]
        new = np.arange(len(rows), len(rows) + size // 10)
        back = self.rng.choice(gone, size=min(len(gone), size // 5), replace=False)
        changed = self.rng.choice(len(rows), size=size - len(new) - len(back), replace=False)
        ids = np.concatenate([changed, back, new])
        seen = rows["seq"].reindex(ids).fillna(1_000).to_numpy(dtype=np.int64)
        kind = self.rng.choice(list(KINDS), size=len(ids), p=list(KINDS.values()))
        apart = self.rng.integers(1, 500, size=len(ids))
        seq = np.select([kind == "newer", kind == "older", kind == "as old"], [seen + apart, seen - apart, seen])
        seq = np.where(kind == "without order", NO_ORDER, seq.clip(min=0))
        # A key's other row in the batch is a little older or newer, or as old: then the later place counts.
        twice = self.rng.choice(len(ids), size=size // 10)
        other = (seq[twice] + self.rng.integers(-1, 2, size=len(twice))).clip(min=NO_ORDER)
        mixed = self.rng.permutation(len(ids) + len(twice))
        return self._rows(np.concatenate([ids, ids[twice]])[mixed], np.concatenate([seq, other])[mixed], deletes=0.2)

    def _rows(self, ids: Any, seq: Any, deletes: float) -> pd.DataFrame:
        count = len(ids)
        return pd.DataFrame(
            {
                "id": ids,
                "seq": seq,
                "op": np.where(self.rng.random(count) < deletes, "d", "u"),
                "amount": self.rng.normal(size=count),
                "name": self.rng.choice(NAMES, size=count),
                "at": pd.to_datetime(self.rng.integers(0, 1 << 50, size=count), unit="us", utc=True),
            }
        )


def arrow(rows: pd.DataFrame) -> pa.Table:
    seq = pa.array(rows["seq"].to_numpy(), pa.int64(), mask=(rows["seq"] == NO_ORDER).to_numpy())
    columns = [seq if f.name == "seq" else pa.array(rows[f.name], f.type, from_pandas=True) for f in SOURCE]
    return pa.table(columns, schema=SOURCE)


def mismatches(found: pa.Table, wanted: pa.Table) -> int:
    """How many rows one table has and the other has not, each as often as it is there."""
    names = wanted.column_names
    signed = [
        table.select(names).cast(wanted.schema).append_column("n", pa.array(np.full(len(table), sign)))
        for table, sign in ((found, 1), (wanted, -1))
    ]
    net = pa.concat_tables(signed).group_by(names).aggregate([("n", "sum")])
    return int(pc.sum(pc.abs(net["n_sum"])).as_py() or 0)


def await_batches(run: PipelineRun, batches: int) -> None:
    while run.batches < batches:
        if run.await_termination(0.05):
            raise SystemExit(f"the pipeline ended by itself after {run.batches} batches")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=20, help="after the first one, which writes every key")
    parser.add_argument("--share", type=float, default=0.01, help="of the keys that a batch changes")
    parser.add_argument("--stores-order", action="store_true", help="the target has the order's column")
    parser.add_argument("--format-version", type=int, default=2, choices=(2, 3))
    parser.add_argument("--write-mode", default="merge-on-read", choices=("merge-on-read", "copy-on-write"))
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return compare(Catalog.local(path=Path(made) / ".helios"), given)


def compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession | None = None) -> int:
    """Runs the batches, and returns 1 when the table differs from the reference."""
    began = time.monotonic()
    catalog.create_namespace("perf")
    source = catalog.create_table("perf.changes", SOURCE).iceberg
    sink = Iceberg.sink("perf.state", catalog=catalog)
    sink = sink.format_version(given.format_version).write_mode(given.write_mode)
    columns = [name for name in SOURCE.names if name != "op" and (name != "seq" or given.stores_order)]
    upsert = sink.upsert("id", order_by="seq", delete_when="op = 'd'", store_order=given.stores_order)
    pipeline = Iceberg.source("perf.changes", catalog=catalog).incremental(poll="100ms") >> upsert
    reference = Reference()
    changes = Changes(given.keys, given.share, given.seed, reference)
    batch = changes.first()
    source.append(arrow(batch))
    run = pipeline.run(spark=spark)
    for number in range(given.batches + 1):
        if number > 0:
            batch = changes.batch()
            source.append(arrow(batch))
        reference.take(batch)
        await_batches(run, number + 1)
        print(f"batch {number}: {len(batch):,} rows, {time.monotonic() - began:.0f} s", flush=True)
    run.stop()
    run.await_termination()
    wanted, table = reference.table(columns), catalog.load("perf.state").iceberg
    found, stored = table.scan().to_arrow(), [field.name for field in table.schema().fields]
    wrong = mismatches(found, wanted) if stored == columns else len(wanted)
    print(
        f"{len(found):,} rows after {run.batches} batches, {(reference.rows['op'] == 'd').sum():,} keys deleted; "
        f"{wrong} mismatches; {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
