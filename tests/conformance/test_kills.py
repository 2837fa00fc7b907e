"""`kill -9` of `helios run` at a commit: several write modes in one process, and every row as the reference has it.

The script kills its own process right before or right after the Nth commit of any of its pipelines; the others are
wherever they happen to be. What was not read before a kill is read together with what came after it: only modes whose
result does not depend on how the source is cut into batches are here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog

pytestmark = pytest.mark.promise("kills")

SCRIPT = """
import os
import signal
import threading
from itertools import count

from helios import Iceberg
from helios.spark.iceberg.transaction import Transaction

moment, _, number = os.environ.get("KILLED", "never:0").partition(":")
commits, real, one = count(1), Transaction.commit, threading.Lock()


def commit(self):
    with one:
        mine = next(commits) == int(number)
    if mine and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(self)
    if mine:
        os.kill(os.getpid(), signal.SIGKILL)


Transaction.commit = commit

source = Iceberg.source("k.s").incremental(poll=1)
newest = {"order_by": "n", "delete_when": "op = 'd'"}
pipelines = [
    source >> Iceberg.sink("k.append"),
    source >> Iceberg.sink("k.upsert").upsert("id", **newest),
    source >> Iceberg.sink("k.upsert_history").upsert("id", history=True, **newest),
    source >> Iceberg.sink("k.merge_sql").merge_sql('''MERGE'''),
    source >> Iceberg.sink("k.branch").branch("aside"),
    source >> Iceberg.sink("k.route").route(by="part"),
    source >> Iceberg.sink("k.audit").audit({"whole": "count(*) = count(id)"}).publish(),
]
"""

MODES = ("append", "upsert", "upsert-history", "merge-sql", "branch", "route", "audit")
KILLS = ("before:3", "after:5", "after:2")


def run(folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def rows(catalog: Catalog, name: str, case: Any) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for part in case.parts:
        table = catalog.load(f"k.{name.replace('-', '_')}{part}").iceberg
        branch = table.metadata.snapshot_by_name(case.branch) if case.branch else None
        arrow = table.scan(snapshot_id=branch.snapshot_id if branch else None).to_arrow()
        found += Counter(zip(*(arrow[c].to_pylist() for c in case.columns), strict=True))
    return found


@pytest.mark.timeout(900)
def test_every_mode_after_kills_at_a_commit(cases: Any, tmp_path: Path) -> None:
    catalog = Catalog.local(path=tmp_path / ".helios")
    catalog.create_namespace("k")
    catalog.create_table("k.s", cases.SCHEMA)
    catalog.create_table("k.merge_sql", pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    (tmp_path / "pipeline.py").write_text(SCRIPT.replace("MERGE", cases.MERGE))
    for batch, kill in zip(cases.BATCHES, [*KILLS, None], strict=True):
        rows_of = [dict(zip(cases.COLUMNS, row, strict=True)) for row in batch]
        catalog.load("k.s").iceberg.append(pa.Table.from_pylist(rows_of, schema=cases.SCHEMA))
        done = run(tmp_path, {"KILLED": kill} if kill else {})
        assert done.returncode == (-signal.SIGKILL if kill else 0), done.stdout + done.stderr
    for name in MODES:
        case = cases.CASES[name]
        assert rows(catalog, name, case) == case.reference([("batch", batch) for batch in cases.BATCHES]), name
