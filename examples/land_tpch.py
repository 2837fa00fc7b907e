"""Lands the tables of TPC-H as parquet files: eight tables, and ten days of changes to orders and their lines.

python examples/land_tpch.py [FOLDER] [--scale 0.01]

The generator is `tpchgen-cli`, from PyPI. Changes come as a source would send them at its worst: shuffled, some twice,
some a day late, and with deletes. `seq` orders the changes of a key, and `op` is I, U or D.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FIXED = ("region", "nation", "supplier", "customer", "part", "partsupp")
CHANGED = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
"""The tables that change, and the column of the order."""

Row = dict[str, Any]


def land(folder: Path, scale: float = 0.01, days: int = 10) -> list[Path]:
    """Writes the files; returns those of changes, in the order in which they arrive.

    Args:
        folder: Where to; a folder in it for each table.
        scale: The scale of TPC-H: 1 is about 1 GB.
        days: How many days of changes come after the first load.
    """
    made = folder / "generated"
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", str(scale), f"--output-dir={made}"], check=True, capture_output=True)
    for name in FIXED:
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.move(made / f"{name}.parquet", folder / name / f"{name}.parquet")
    tables = {name: pq.read_table(made / f"{name}.parquet") for name in CHANGED}
    orders = tables["orders"]["o_orderkey"].to_pylist()
    history = _history(orders, days)
    landed = [path for name in CHANGED for path in _write(folder / name, name, tables[name], history)]
    shutil.rmtree(made)
    return landed


def _history(orders: list[int], days: int) -> list[dict[int, str]]:
    """What happens to each order, day by day: nine in ten are there first, the others follow."""
    chance = random.Random(1)
    shuffled = chance.sample(orders, len(orders))
    first = len(orders) * 9 // 10
    history, there = [dict.fromkeys(shuffled[:first], "I")], set(shuffled[:first])
    for day in range(days):
        new = shuffled[first + day :: days]
        changed = chance.sample(sorted(there), len(orders) // 50)
        gone = chance.sample(changed, len(changed) // 4)
        history.append(dict.fromkeys(new, "I") | dict.fromkeys(changed, "U") | dict.fromkeys(gone, "D"))
        there = (there | set(new)) - set(gone)
    return history


def _write(folder: Path, name: str, table: pa.Table, history: list[dict[int, str]]) -> list[Path]:
    chance, key = random.Random(name), CHANGED[name]
    rows: dict[int, list[Row]] = {}
    for row in table.to_pylist():
        rows.setdefault(row[key], []).append(row)
    days: list[list[Row]] = [[] for _ in range(len(history) + 1)]
    for day, changes in enumerate(history):
        for order, op in changes.items():
            for row in rows[order]:
                changed = {**row, "op": op, "seq": day}
                if op == "U":
                    changed[f"{name[0]}_comment"] = f"changed on day {day}"
                days[day + (day > 0 and chance.random() < 0.05)].append(changed)  # some come a day late
                if chance.random() < 0.02:
                    days[chance.choice((day, day + 1))].append(changed)  # some come twice
    schema = pa.schema([*table.schema, ("op", pa.string()), ("seq", pa.int32())])
    folder.mkdir(parents=True, exist_ok=True)
    landed = []
    for day, arrived in enumerate(days):
        chance.shuffle(arrived)
        path, draft = folder / f"day-{day:02}.parquet", folder / f".day-{day:02}.part"
        pq.write_table(pa.Table.from_pylist(arrived, schema=schema), draft)
        stamp = draft.stat().st_mtime - 3600 + day  # files are read by their times
        os.utime(draft, (stamp, stamp))
        draft.rename(path)
        landed.append(path)
    return landed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "data" / "tpch")
    parser.add_argument("--scale", type=float, default=0.01)
    arguments = parser.parse_args()
    for landed_file in land(arguments.folder, arguments.scale):
        print(landed_file)
