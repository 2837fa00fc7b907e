"""An upsert of many keys, batch by batch, beside a pandas reference: prints the rows that differ.

    python perf/upsert_reference.py --keys 1000000 --batches 20

The first batch writes every key. Each later one changes 1% of them: most rows are newer, some are late (an older order
must not win), some tie with the row that is there (the later batch wins), some delete their key, and some bring back an
old row of a deleted key (it must stay away). Each batch is a commit of its own, which the pipeline follows. At the end
the table is read by PyIceberg and compared with the reference, all columns as a multiset.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from helios import Catalog, Iceberg

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.float64()), ("name", pa.string()), ("seq", pa.int64()), ("op", pa.string())]
)
KINDS = {"update": 0.70, "late": 0.12, "tie": 0.06, "delete": 0.12}


@dataclass
class Reference:
    """The table as it must be: the newest row of each key by its order, deletes remembered."""

    rows: pd.DataFrame

    @classmethod
    def empty(cls, keys: int) -> Reference:
        frame = pd.DataFrame({"id": np.arange(keys), "v": 0.0, "name": "", "seq": -1, "alive": False})
        return cls(frame.set_index("id"))

    def apply(self, batch: pd.DataFrame) -> None:
        # Of the rows of a key in a batch the newest counts; it wins over what is there unless that is newer.
        newest = batch.sort_values("seq").groupby("id").last()
        wins = newest[newest["seq"] >= self.rows.loc[newest.index, "seq"]]
        self.rows.loc[wins.index, ["v", "name", "seq"]] = wins[["v", "name", "seq"]]
        self.rows.loc[wins.index, "alive"] = wins["op"] != "d"

    def table(self, columns: list[str]) -> pd.DataFrame:
        return self.rows[self.rows["alive"]].reset_index()[columns].sort_values("id").reset_index(drop=True)


def changes(reference: Reference, number: int, share: float, random: np.random.Generator) -> pd.DataFrame:
    """The rows of a batch."""
    keys = len(reference.rows)
    if number == 0:
        ids, kinds = np.arange(keys), np.full(keys, "update")
    else:
        ids = random.choice(keys, max(1, round(keys * share)), replace=False)
        kinds = random.choice(list(KINDS), len(ids), p=list(KINDS.values()))
    there = reference.rows.loc[ids, "seq"].to_numpy()
    step = np.select([kinds == "late", kinds == "tie"], [-random.integers(1, 50, len(ids)), 0], 50 + number)
    batch = pd.DataFrame(
        {
            "id": ids,
            "v": random.random(len(ids)).round(6),
            "name": [f"name {number}-{i}" for i in ids],
            "seq": there + step,
            "op": np.where(kinds == "delete", "d", "u"),
        }
    )
    # Some keys come twice in a batch, once with an older order.
    twice = batch.sample(frac=0.1, random_state=number).assign(seq=lambda b: b["seq"] - 1, name="older", op="u")
    return pd.concat([batch, twice]).sample(frac=1, random_state=number)


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


def compare(catalog: Catalog, given: Any, spark: Any = None) -> int:
    """Runs the batches and returns 1 when the table differs from the reference."""
    random, reference, began = np.random.default_rng(given.seed), Reference.empty(given.keys), time.monotonic()
    catalog.create_namespace("perf")
    source = catalog.create_table("perf.changes", SCHEMA).iceberg
    columns = ["id", "v", "name"]
    if given.stores_order:
        columns.append("seq")
        catalog.create_table("perf.state", pa.schema([SCHEMA.field(c) for c in columns]))
    pipeline = Iceberg.source("perf.changes", catalog=catalog).incremental() >> (
        Iceberg.sink("perf.state", catalog=catalog)
        .format_version(given.format_version)
        .write_mode(given.write_mode)
        .upsert("id", order_by="seq", delete_when="op = 'd'")
    )
    for number in range(given.batches + 1):
        batch = changes(reference, number, given.share, random)
        source.append(pa.Table.from_pandas(batch, schema=SCHEMA, preserve_index=False))
        source.refresh()
        pipeline.run(once=True, spark=spark).await_termination()
        reference.apply(batch)
        print(f"batch {number}: {len(batch):,} rows, {time.monotonic() - began:.0f} s", flush=True)
    arrow = catalog.load("perf.state").iceberg.scan(selected_fields=tuple(columns)).to_arrow()
    found = arrow.select(columns).to_pandas().sort_values(columns).reset_index(drop=True)
    expected = reference.table(columns)
    both = found.merge(expected, how="outer", on=columns, indicator=True)
    wrong = int((both["_merge"] != "both").sum()) + abs(len(found) - len(expected))
    print(f"{len(found):,} rows after {given.batches + 1} batches, {wrong} differ from the reference")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
