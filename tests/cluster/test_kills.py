"""Workers and drivers that are killed in mid-run: every row is there once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog
from tests.cluster.conftest import executors, wait_until
from tests.cluster.conftest import rows as rows_of

pytestmark = pytest.mark.promise("cluster", "kills")

FILES, ROWS, KEYS = 7, 40, 50
SCRIPT = """
    from helios import Catalog, Iceberg, param

    lake = Catalog.local("lake", path=param("lake", ""))

    def slowly(df):
        def frames_of(frames):
            import time
            for frame in frames:
                time.sleep(1)  # so that a task is at work when a worker dies
                yield frame.assign(double=frame["id"] * 2)
        return df.mapInPandas(frames_of, "id long, k long, double long")

    events = Iceberg.source("kills.source", catalog=lake).incremental(poll="200ms", max_files=1, start="earliest")
    copied = events >> slowly >> Iceberg.sink("kills.copied", catalog=lake)
    newest = events >> slowly >> Iceberg.sink("kills.newest", catalog=lake).upsert("k", order_by="id")
"""


@pytest.fixture
def lake(project: Any, tmp_path: Path) -> Catalog:
    """A source of files that are read one in a batch, and a script that follows it."""
    made = Catalog.local("lake", path=tmp_path / "lake")
    made.create_namespace("kills")
    made.create_table("kills.source", pa.schema([("id", pa.int64()), ("k", pa.int64())]))
    table = made.load("kills.source").iceberg
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table.append(pa.table({"id": list(ids), "k": [i % KEYS for i in ids]}))
    project.write(pipeline=SCRIPT)
    return made


def check(lake: Catalog) -> None:
    ids = range(FILES * ROWS)
    assert rows_of(lake, "kills.copied", "id", "k", "double") == Counter((i, i % KEYS, i * 2) for i in ids)
    assert rows_of(lake, "kills.newest", "k", "double") == Counter((i % KEYS, i * 2) for i in ids[-KEYS:])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_row_once_when_workers_are_killed(project: Any, lake: Catalog, tmp_path: Path) -> None:
    first, second = project.cluster.workers
    driver = project.start("pipeline.py", "--once", "--set", f"lake={tmp_path / 'lake'}")
    driver.await_event("batch", "copied", 2)
    first.kill()
    reached = len(driver.events("batch", "copied"))
    driver.await_event("batch", "copied", reached + 2)  # the other worker goes on
    second.kill()
    assert len(driver.events("batch")) < 2 * FILES, "the run was over before both were killed"
    wait_until(lambda: project.cluster.master.alive() == 0, "the master misses both")
    first.start()
    assert driver.process.wait(400) == 0, driver.said
    check(lake)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_row_once_when_the_driver_is_killed(project: Any, lake: Catalog, tmp_path: Path) -> None:
    arguments = ("pipeline.py", "--set", f"lake={tmp_path / 'lake'}")
    driver = project.start(*arguments)
    driver.await_event("batch", "copied", 3)
    driver.kill()
    assert rows_of(lake, "kills.copied", "id") != Counter((i,) for i in range(FILES * ROWS))
    wait_until(lambda: not executors(project.cluster), "its executors end")
    project.drain(*arguments)
    check(lake)
