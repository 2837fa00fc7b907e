"""A materialized view beside a full recompute: prints how many groups differ, which must be 0.

    python perf/views.py --changes 100

After each of the random changes of a table (inserts, updates, deletes, rows that move to another group, compactions,
truncations) a pipeline keeps an aggregate of it: counts, sums, averages, smallest and largest values. Each time the
whole view is compared with the same aggregate computed anew by Spark.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from helios import Catalog, Iceberg, Memory, aggregate, where

FIGURES = {
    "n": "count(*)",
    "known": "count(v)",
    "total": "sum(v)",
    "mean": "avg(v)",
    "low": "min(v)",
    "high": "max(v)",
    "kinds": "count(DISTINCT v)",
    "real": "sum(f)",
}
KEPT = "id % 10 != 3"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--format-version", type=int, default=3, choices=(2, 3))
    parser.add_argument("--write-mode", default="merge-on-read", choices=("merge-on-read", "copy-on-write"))
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return compare(Catalog.local(path=Path(made) / ".helios"), given)


def compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession | None = None) -> int:
    """Makes the changes, and returns 1 when the view ever differs from the recompute."""
    began, dice = time.monotonic(), random.Random(given.seed)
    # A run that does nothing: it declares the catalog in a session.
    opened = Memory.source([], "id bigint") >> Iceberg.sink("perf.opened", catalog=catalog)
    run = opened.run(once=True, spark=spark)
    run.await_termination()
    session = run.spark
    base = catalog.name
    modes = ", ".join(f"'write.{kind}.mode'='{given.write_mode}'" for kind in ("delete", "update", "merge"))
    session.sql(
        f"CREATE TABLE {base}.perf.facts (id bigint, `the group` string, v bigint, f double) USING iceberg "
        f"TBLPROPERTIES ('format-version'='{given.format_version}', {modes})"
    )
    source = Iceberg.source("perf.facts", catalog=catalog).incremental(poll=1).changes()
    view = Iceberg.sink("perf.view", catalog=catalog).upsert("the group")
    pipeline = source >> where(KEPT) >> aggregate("`the group`", **FIGURES) >> view
    wrong, kinds = 0, Counter[str]()
    for number in range(given.changes):
        kind = change(session, f"{base}.perf.facts", dice, number)
        kinds[kind] += 1
        pipeline.run(once=True, spark=session).await_termination()
        figures = ", ".join(f"{expression} AS {name}" for name, expression in FIGURES.items())
        wanted = told(session, f"SELECT `the group`, {figures} FROM {base}.perf.facts WHERE {KEPT} GROUP BY 1")
        found = told(session, f"SELECT `the group`, {', '.join(FIGURES)} FROM {base}.perf.view")
        off = sum(((found - wanted) + (wanted - found)).values())
        wrong += off
        if off or number % 10 == 9:
            print(f"change {number} ({kind}): {len(found)} groups, {off} differ", flush=True)
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{given.changes} changes ({done}); {wrong} groups ever differed; {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def told(session: SparkSession, query: str) -> Counter[Any]:
    """Rows as a multiset; sums of floating-point numbers are added up in another order."""
    rows = session.sql(query).collect()
    return Counter(tuple(float(f"{x:.9g}") if isinstance(x, float) else x for x in row) for row in rows)


def change(session: SparkSession, table: str, dice: random.Random, number: int) -> str:
    """One random commit of the table; returns what it was."""
    some = f"id % {dice.randint(3, 9)} = {dice.randint(0, 2)}"
    group = f"CASE id % 4 WHEN {dice.randint(0, 3)} THEN NULL ELSE concat('g', (id + {number}) % 7) END"
    kinds = {"insert": 4, "update": 3, "delete": 2, "move": 2, "compact": 1, "truncate": 0.2}
    [kind] = dice.choices(list(kinds), list(kinds.values())) if number else ["insert"]
    first = dice.randint(0, 100)
    values = f"id, {group}, nullif(id % 7, {number % 7}), id / 3 FROM range({first}, {first + 40})"
    session.sql(
        {
            "insert": f"INSERT INTO {table} SELECT {values}",
            "update": f"UPDATE {table} SET v = v + {dice.randint(-9, 9)}, f = f * 1.1 WHERE {some}",
            "delete": f"DELETE FROM {table} WHERE {some}",
            "move": f"UPDATE {table} SET `the group` = {group} WHERE {some}",
            "compact": f"CALL {table.partition('.')[0]}.system.rewrite_data_files(table => 'perf.facts', "
            "options => map('rewrite-all', 'true'))",
            "truncate": f"TRUNCATE TABLE {table}",
        }[kind]
    )
    return kind


if __name__ == "__main__":
    sys.exit(main())
