"""The kills of `helios.testing`, repeated with a real `kill -9` of the driver: the tables equal those of the kit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog
from helios.testing.stage import KILLS

pytestmark = [pytest.mark.promise("testing"), pytest.mark.process]

SCRIPT = """
import os
import signal

from helios import Iceberg, expect
from helios.testing.spark.runs import MOMENTS

moment = os.environ.get("KILLED")
if moment:
    owner, name, behind = MOMENTS[moment]
    real = getattr(owner, name)

    def killed(*given, **named):
        made = real(*given, **named) if behind else None
        if moment != "after_commit" or made is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(owner, name, killed)

MERGE = '''MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET amount = batch.amount
    WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (batch.id, batch.amount)'''
orders = Iceberg.source("shop.orders").incremental()
good = orders >> expect({"positive": "amount > 0"}, on_fail="quarantine")
target = Iceberg.sink("shop.t")
pipeline = {
    "append": good >> target.quarantine("shop.bad"),
    "upsert": good >> target.upsert("id", order_by="amount").quarantine("shop.bad"),
    "versions": good >> target.upsert("id", order_by="amount", history=True).quarantine("shop.bad"),
    "overwrite": good >> target.overwrite("id > 0").quarantine("shop.bad"),
    "partitions": good >> target.partition_by("id").overwrite_partitions().quarantine("shop.bad"),
    "merge": good >> target.merge_sql(MERGE).quarantine("shop.bad"),
    "branch": good >> target.branch("side").quarantine("shop.bad"),
    "audit": good >> target.audit({"some": "count(*) > 0"}).publish().quarantine("shop.bad"),
    "route": good >> target.route(by="id").quarantine("shop.bad"),
}[os.environ["MODE"]]
"""
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
FIRST, SECOND = [(1, 1.0), (2, 2.0), (3, -1.0)], [(1, 3.0), (4, -2.0)]
AFTER: dict[str, list[tuple[int, float]]] = {
    "append": [(1, 1), (2, 2), (1, 3)],
    "upsert": [(1, 3), (2, 2)],
    "versions": [(1, 1), (2, 2), (1, 3)],
    "overwrite": [(1, 3)],
    "partitions": [(1, 3), (2, 2)],
    "merge": [(1, 3), (2, 2)],
    "branch": [(1, 1), (2, 2), (1, 3)],
    "audit": [(1, 1), (2, 2), (1, 3)],
    "route": [(1, 1), (1, 3)],
}
"""By mode, the rows after both batches, as `test_each_write_mode` of the kit expects them; of routes, those of id 1."""


class Lake:
    """A real lake in a folder, whose pipeline runs in a process of its own."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.mode = folder, mode
        self.catalog = Catalog.local(path=folder / ".helios")
        self.catalog.create_namespace("shop")
        self.catalog.create_table("shop.orders", ORDERS)
        if mode == "merge":
            self.catalog.create_table("shop.t", ORDERS)
        (folder / "pipeline.py").write_text(SCRIPT)

    def add(self, rows: list[tuple[int, float]]) -> None:
        columns = [{"id": id, "amount": amount} for id, amount in rows]
        self.catalog.load("shop.orders").iceberg.append(pa.Table.from_pylist(columns, schema=ORDERS))

    def run(self, kill: str | None = None) -> None:
        environment = {**os.environ, "MODE": self.mode, "KILLED": kill or ""}
        command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"]
        # In a group of its own: the JVM of a killed driver ends by itself, or here.
        running = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=-1, stderr=-2, text=True, start_new_session=True
        )
        said, _ = running.communicate(timeout=300)
        assert running.returncode == (-signal.SIGKILL if kill else 0), said

    def rows(self, table: str, *columns: str, branch: str | None = None) -> Counter[tuple[Any, ...]]:
        scan = self.catalog.load(table).iceberg.scan(selected_fields=columns)
        scan = scan.use_ref(branch) if branch is not None else scan
        return Counter(tuple(row[name] for name in columns) for row in scan.to_arrow().to_pylist())

    def check(self) -> None:
        table, branch = "shop.t_1" if self.mode == "route" else "shop.t", "side" if self.mode == "branch" else None
        assert self.rows(table, "id", "amount", branch=branch) == Counter(AFTER[self.mode])
        rejected = self.rows("shop.bad", "payload")
        assert Counter(json.loads(payload)["id"] for (payload,) in rejected.elements()) == Counter([3, 4])


@pytest.mark.landing
@pytest.mark.timeout(600)
def test_two_kills(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "append")
    lake.add(FIRST)
    lake.run("before_commit")
    assert not lake.catalog.exists("shop.t") or not lake.rows("shop.t", "id")
    lake.run("after_commit")
    lake.add(SECOND)
    lake.run()
    lake.check()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", AFTER)
def test_each_mode_and_moment(tmp_path: Path, mode: str) -> None:
    lake = Lake(tmp_path, mode)
    lake.add(FIRST)
    for moment in KILLS:
        lake.run(moment)
    lake.add(SECOND)
    for moment in KILLS:
        lake.run(moment)
    lake.run()
    lake.check()
